"""A view that goes on where one before it ended has what one has that read everything, whatever happened to its file."""

import os
import pickle
import random
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.errors import ViewFailed
from claw_r1.datapool.pool_file import AGE_MAX_S, CLOCK_S, UNUSED_MAX_S
from claw_r1.datapool.view.listing.query import stats
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.snapshot import ViewFile, listed_rows, view_path
from claw_r1.datapool.view.view import SAVED_AT_END_ROWS, PoolView
from claw_r1.eventlog.kafka.admin import create_topics, topics_id
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.cloudevents import of_run
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES
from tests import facts
from tests.datapool.view.listing.test_pages import everything
from tests.datapool.view.listing.test_tables import FILTERS, random_facts
from tests.small_disk import run_on_small_disk
from tests.trainer.pooled import SETTINGS, group, rows_of

PLACE = ("claw.datapool.steps", 0)
ENDS = {PLACE: 1_000_000}
TOPICS = {topic.name: topic for topic in (STEPS, TRAJECTORIES, GROUPS)}


def written(seed: int, count: int = 60) -> list[tuple[str, bytes, bytes | None]]:
    """Rows of a pool in the order of its folds."""
    return written_of(random_facts(seed, count))


def written_of(history) -> list[tuple[str, bytes, bytes | None]]:
    log = MemoryLog(SETTINGS)
    return [(topic, key, value) for _, topic, key, value in rows_of(history, lambda item: log.append([item])[0])]


def bare(rows) -> PoolRows:
    view = PoolRows(listed=True)
    for row in rows:
        view.apply(*row)
    return view


def same(view: PoolRows, other: PoolRows, filters=()) -> None:
    """All rows, columns, whole groups and their members, and what filters and counts find."""
    for kind in ("groups", "trajectories", "steps"):
        assert everything(view, kind) == everything(other, kind)
        assert everything(view, kind, sort="task", descending=True) == everything(
            other, kind, sort="task", descending=True
        )
    for each in filters:
        assert stats(view, each) == stats(other, each)
    assert view.groups() == other.groups()
    assert [view.members(one) for one in view.groups()] == [other.members(one) for one in other.groups()]
    assert list(view.trajectory_rows()) == list(other.trajectory_rows())
    assert view.reward_slots == other.reward_slots


@given(st.integers(0, 10_000), st.lists(FILTERS, max_size=4), st.lists(st.integers(0, 150), max_size=3))
def test_a_view_from_a_file_has_what_one_without_has(tmp_path_factory, seed, filters, ends):
    """Ended and begun again at any rows, asked in between or not, with a group that is forgotten."""
    path, rows, at = tmp_path_factory.mktemp("views") / "a.view", written(seed), 0
    for end in [*sorted(ends), len(rows)]:
        with closing(Opened(path)) as one:
            assert one.at == at
            for row in rows[at:end]:
                one.rows.apply(*row)
            at = max(at, min(end, len(rows)))
            if end % 2:
                same(one.rows, bare(rows[:at]), filters)
            one.save(at)
    with closing(Opened(path)) as one:
        same(one.rows, bare(rows), filters)
        one.rows.forget("h")
        one.save(at)
    with closing(Opened(path)) as one:
        other = bare(rows)
        for view in (one.rows, other):
            view.forget("h")
            view.apply(*next(row for row in rows if row[0] == GROUPS.name))
        same(one.rows, other, filters)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 150), max_size=3), st.sampled_from([1, 1 << 20]))
def test_a_trainers_view_from_a_file_has_what_one_without_has(tmp_path_factory, seed, ends, cache_bytes):
    """However little of it may stay decoded; what it forgot, or did not keep, stays so."""
    path, rows, at = tmp_path_factory.mktemp("views") / "a.view", written(seed), 0
    make = partial(PoolRows, lambda group: group.group_id != "g", cache_bytes=cache_bytes)
    other = make()
    for end in [*sorted(ends), len(rows)]:
        with closing(Opened(path, empty=make)) as one:
            assert one.at == at
            for row in rows[at:end]:
                one.rows.apply(*row)
                other.apply(*row)
            at = max(at, min(end, len(rows)))
            if end % 3 == 0:
                one.rows.forget("h")
                other.forget("h")
            same_groups(one.rows, other)
            one.save(at)
    with closing(Opened(path, empty=make)) as one:
        same_groups(one.rows, other)


@pytest.mark.parametrize("empty", [listed_rows, PoolRows])
def test_an_evicted_group_stays_a_stub_over_a_restart(tmp_path, empty):
    """The topics are read independently: its other rows may come after the stub, and their tombstones later still."""
    path, rows = tmp_path / "a.view", written_of([*group("gone", [0.0, 1.0]), facts.evicted_group("gone")])
    stub = next(row for row in reversed(rows) if row[0] == GROUPS.name)
    with closing(Opened(path, empty=empty)) as one:
        one.rows.apply(*stub)
        one.save(1)
    with closing(Opened(path, empty=empty)) as one:
        for row in rows:
            if row[2] is not None and row[0] != GROUPS.name:
                one.rows.apply(*row)
        assert list(one.rows.trajectory_rows()) == []


def same_groups(view: PoolRows, other: PoolRows) -> None:
    assert view.groups() == other.groups()
    assert [view.members(one) for one in view.groups()] == [other.members(one) for one in other.groups()]
    assert list(view.group_rows()) == list(other.group_rows())
    assert list(view.trajectory_rows()) == list(other.trajectory_rows())
    assert view.store.fresh == other.store.fresh


class Opened:
    """A view's file and what it holds, as its next process finds it."""

    def __init__(self, path: Path, log_id: str = "ids", now_s: float = 1e9, ends=ENDS, empty=listed_rows) -> None:
        self.file = ViewFile(path, log_id, lambda: now_s, empty)
        self.rows, offsets = self.file.restored(lambda: ends)
        self.at = offsets.get(PLACE, 0)

    def save(self, at: int) -> bool:
        return self.file.save(self.rows, {PLACE: at})

    def close(self) -> None:
        self.file.close(self.rows)


def saved(path: Path, rows, *, in_order: bool = True) -> None:
    one = Opened(path)
    for row in rows:
        one.rows.apply(*row)
    assert one.save(len(rows))
    one.close()
    if not in_order:
        path.with_suffix(".sum").unlink()


KILLED = """
import pickle
import sys
from pathlib import Path
from claw_r1.datapool.view.snapshot import ViewFile
path, place, every = Path(sys.argv[1]), ("claw.datapool.steps", 0), int(sys.argv[2])
written = pickle.loads(path.with_suffix(".rows").read_bytes())
file = ViewFile(path, "ids", lambda: 1e9)
rows, offsets = file.restored(lambda: {place: 1_000_000})
for at in range(offsets.get(place, 0), len(written)):
    rows.apply(*written[at])
    if at % every == 0:
        file.save(rows, {place: at + 1})
    print(at, flush=True)
"""


@pytest.mark.process
def test_a_kill_at_any_moment_leaves_a_file_that_is_right(tmp_path):
    """Killed in the middle of rows and of saves, again and again: each next one goes on from a moment that was saved."""
    path, dice, rows = tmp_path / "a.view", random.Random(1), written(7, 400)
    path.with_suffix(".rows").write_bytes(pickle.dumps(rows))
    reached = 0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", KILLED, path, "9"], stdout=subprocess.PIPE)
        for line in child.stdout:
            if int(line) >= reached + dice.randint(20, 60):
                break
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        with closing(Opened(path)) as one:
            assert one.at > reached
            reached = one.at
            same(one.rows, bare(rows[:reached]))
        path.with_suffix(".sum").unlink()  # as after a kill, which the look of this test was not


def test_a_journal_that_a_kill_left_is_not_taken_for_that_of_a_new_file(tmp_path):
    """One that began before there was a file writes its own over it: sqlite would play the old journal into that."""
    path, rows = tmp_path / "a.view", written(5)
    second, first = Opened(path), Opened(path)
    for end in (20, 40):
        for row in rows[:end]:
            first.rows.apply(*row)
        assert first.save(end)
    left = {each: each.read_bytes() for each in tmp_path.iterdir() if each.suffix != ".lock"}
    assert left[path.with_name("a.view-wal")]
    first.close()
    for each, content in left.items():
        each.write_bytes(content)
    for row in rows:
        second.rows.apply(*row)
    assert second.save(len(rows))
    same(second.rows, bare(rows))
    second.close()
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(Opened(path)) as third:
        assert third.at == len(rows)
        same(third.rows, bare(rows))


@pytest.mark.parametrize("are_read", [True, False])
def test_a_file_is_as_old_as_the_last_moment_at_which_all_was_read(tmp_path, are_read):
    """A save in between does not make it younger: tombstones of what was not read since may be gone."""
    path, rows, days = tmp_path / "a.view", written(5), 86400
    saved(path, rows[:50])
    with closing(Opened(path, now_s=1e9 + 5 * days)) as one:
        assert one.at == 50
        if are_read:
            one.file.caught_up()
        one.save(50)
    with closing(Opened(path, now_s=1e9 + 10 * days)) as one:
        assert one.at == (50 if are_read else 0)


def test_a_pause_longer_than_tombstones_are_kept_ends_a_file(tmp_path):
    """A machine that slept for a week goes on with rows that may be gone: the next start reads all."""
    path, now = tmp_path / "a.view", [1e9]
    one = ViewFile(path, "ids", lambda: now[0])
    rows, _ = one.restored(lambda: ENDS)
    assert one.save(rows, {PLACE: 5})
    now[0] += AGE_MAX_S + 1
    one.caught_up()
    assert not one.save(rows, {PLACE: 9})
    one.close(rows)
    assert not path.exists()


def test_a_folder_that_is_closed_to_us_is_no_reason_to_fail(tmp_path):
    """The view is read from the log, as without one; here a file stands where the folder would be."""
    (tmp_path / "views").write_text("")
    with closing(Opened(tmp_path / "views" / "a.view")) as one:
        one.rows.apply(*written(5)[0])
        with pytest.raises(OSError, match="views"):
            one.save(1)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("at", [0, 0.3, 0.6, 1])
def test_a_file_that_is_cut_or_overwritten_is_begun_again(tmp_path, at, in_order):
    """Whether it was closed in order or not, and wherever the damage is that sqlite can see."""
    path, rows = tmp_path / "a.view", written(3)
    saved(path, rows, in_order=in_order)
    whole = path.read_bytes()
    begin = int(at * (len(whole) - 4096))
    for damaged in (whole[: begin // 2], whole[:begin] + os.urandom(4096) + whole[begin + 4096 :]):
        path.write_bytes(damaged)
        with closing(Opened(path)) as one:
            assert (one.at, one.rows.records.size) == (0, 0)
            for row in rows:
                one.rows.apply(*row)
            same(one.rows, bare(rows))
            assert one.save(len(rows))
        with closing(Opened(path)) as again:
            assert again.at == len(rows)


def test_one_bit_that_changed_after_a_file_was_closed_is_seen(tmp_path):
    """In what sqlite takes for good, too."""
    path, dice = tmp_path / "a.view", random.Random(2)
    for _ in range(20):
        path.unlink(missing_ok=True)
        saved(path, written(3, 10))
        whole = bytearray(path.read_bytes())
        whole[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(whole)
        with closing(Opened(path)) as one:
            assert one.at == 0


@pytest.mark.parametrize(
    ("reason", "options"),
    [
        ("of other topics", {"log_id": "others"}),
        ("older than", {"now_s": 1e9 + AGE_MAX_S + 1}),
        ("clock went back", {"now_s": 1e9 - CLOCK_S - 1}),
        ("end before it", {"ends": {PLACE: 3}}),
        ("end before it", {"ends": {}}),
    ],
)
def test_a_file_that_may_not_fit_the_log_is_begun_again(tmp_path, capsys, reason, options):
    """The log says why, in one line; and the file is gone, so that the next start does not say it again."""
    path = tmp_path / "a.view"
    saved(path, written(3))
    with closing(Opened(path, **options)) as one:
        assert one.at == 0
    assert reason in capsys.readouterr().out
    assert not path.exists()


def test_a_file_most_of_whose_rows_are_gone_is_begun_again(tmp_path, capsys, monkeypatch):
    """The numbers and ids of what left the pool would be read at each start, for ever."""
    monkeypatch.setattr("claw_r1.datapool.view.snapshot.GONE_MAX", 10)
    here, gone = group("here", [0.0, 1.0]), group("gone", [0.0] * 8)
    rows = written_of([*here, *gone, facts.evicted_group("gone")])
    path = tmp_path / "a.view"
    saved(path, written_of([*here, *gone]))
    with closing(Opened(path)) as one:
        assert one.at > 0
    path.unlink()
    saved(path, rows)
    with closing(Opened(path)) as one:
        assert one.at == 0
    assert "most of its rows are gone" in capsys.readouterr().out


def test_a_second_process_starts_from_what_the_first_one_saved(tmp_path):
    """It has a copy of its own, and writes no file: the first goes on saving."""
    path, rows = tmp_path / "a.view", written(5)
    half = len(rows) // 2
    saved(path, rows[:half])
    with closing(Opened(path)) as first, closing(Opened(path)) as second:
        for row in rows[half:]:
            first.rows.apply(*row)
        assert second.at == half
        assert not second.save(len(rows))
        assert first.save(len(rows))
        with closing(Opened(path)) as third:
            assert third.at == len(rows)
            for row in rows[half:]:
                second.rows.apply(*row)
            for one in (first, second, third):
                same(one.rows, bare(rows))


def test_files_of_other_versions_stay_and_unused_ones_go(tmp_path):
    """A file of a newer version has another name: nobody overwrites it. A month later nobody wants it back, nor what a process
    had begun that was killed in its first save; what is not ours stays."""
    path = tmp_path / "claw.g1.f11.view"
    newer = [tmp_path / f"claw.g1.f12.{suffix}" for suffix in ("view", "new", "sum", "lock")]
    unused = [tmp_path / f"claw.g1.f9.{suffix}" for suffix in ("view", "new", "sum")]
    foreign = [tmp_path / name for name in ("SHA256.sum", "site.conf.new", "a.view")]
    for other in (*newer, *unused, *foreign):
        other.write_text("of another version")
        os.utime(other, (1e9 - UNUSED_MAX_S + (60 if other in newer else -60),) * 2)
    saved(path, written(3))
    assert [other.read_text() for other in (*newer, *foreign)] == ["of another version"] * len([*newer, *foreign])
    assert [other for other in unused if other.exists()] == []


def test_a_full_disk_costs_the_next_start_and_not_this_view(tmp_path):
    """A file that cannot be written is an error of the save alone: rows are taken in and asked for as before."""
    path, rows = tmp_path / "none" / "a.view", written(5)
    half = len(rows) // 2
    one = Opened(path)
    for row in rows[:half]:
        one.rows.apply(*row)
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".new").mkdir()
    with pytest.raises(IsADirectoryError):
        one.save(half)
    for row in rows[half:]:
        one.rows.apply(*row)
    same(one.rows, bare(rows))
    path.with_suffix(".new").rmdir()
    assert one.save(len(rows))
    one.close()
    with closing(Opened(path)) as again:
        same(again.rows, bare(rows))


FULL = """
import sqlite3
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from tests.datapool.view.test_snapshot import Opened, bare, same, written
path, rows = Path(sys.argv[1]) / "a.view", written(5, 40)
half = len(rows) // 2
one = Opened(path)
for row in rows[:half]:
    one.rows.apply(*row)
assert one.save(half)
ballast = (Path(sys.argv[1]) / "ballast").open("wb", buffering=0)
try:
    while True:
        ballast.write(bytes(4096))
except OSError:
    pass
at = half
try:
    while True:
        for row in rows[half:]:
            one.rows.apply(*row)
        one.save(at := at + 1)
except sqlite3.OperationalError as error:
    print(error)
one.close()
(Path(sys.argv[1]) / "ballast").unlink()
with closing(Opened(path)) as again:
    print(half <= again.at <= at)
    for row in rows[half:]:
        again.rows.apply(*row)
    same(again.rows, bare(rows))
"""


def test_a_full_disk_under_what_is_forgotten_is_said_in_one_line():
    """The trainer forgets a group with each plan: a line and its exit code tell the cause, as of any other question."""
    view = PoolView(SETTINGS)
    view._rows.store._db.execute("PRAGMA max_page_count = 1")  # no page more than there are
    with pytest.raises(ViewFailed, match="is full"):
        list(map(view.forget, (f"{number:0100}" for number in range(10_000))))


@pytest.mark.process
def test_a_disk_that_is_really_full_leaves_a_file_that_is_right(tmp_path):
    """Under the rows of a view that stand in a file of a name: it ends with sqlite's words, and the next goes on from what was saved."""
    words, is_between = run_on_small_disk(FULL, tmp_path, "2M")
    assert "disk is full" in words
    assert is_between == "True"


@pytest.mark.kafka
def test_a_view_of_a_real_log_reads_the_tail(log_settings, tmp_path):
    """What stood in the topics when the view before it ended is not read again, nor is it of topics that were made anew."""
    settings = log_settings.model_copy(update={"views_dir": tmp_path})
    create_topics(settings)
    histories = [group(f"g{number}", [0.0, 1.0, 0.5]) for number in range(60)]
    rows = [
        Outgoing(topic=TOPICS[topic], key=key, value=value)
        for history in histories
        for topic, key, value in written_of(history)
    ]
    assert len(rows) > SAVED_AT_END_ROWS
    with closing(KafkaLog(settings).producer()) as producer:
        for row in rows[:-2]:
            producer.produce(row)
        producer.produce(rows[-1]).result()
        assert asked(settings, tmp_path) > SAVED_AT_END_ROWS
        assert view_path(tmp_path, settings.catalogue()).exists()
        producer.produce(rows[-2]).result()
        assert asked(settings, tmp_path) == 1
        assert asked(settings, tmp_path, group="g7") == 1
        assert len({topics_id(settings, [topic]) for topic in TOPICS.values()} | {""}) == len(TOPICS) + 1


@pytest.mark.kafka
@pytest.mark.parametrize("generation", [1, 2])
def test_a_view_of_one_run_passes_over_the_rows_of_others(log_settings, generation):
    """It takes in its own and those of no run yet; a group that turns out to be another run's is dropped, and one that was
    another's is taken in."""
    log_settings = log_settings.model_copy(update={"generation": generation})
    create_topics(log_settings)
    late = written_of([facts.opened("late", envelope=facts.envelope(run_id=None))])
    own, others = (
        [(row, run) for number in range(4) for row in written_of(group(f"{run}-{number}", [0.0, 1.0], run=run))]
        for run in ("own", "other")
    )
    random.Random(1).shuffle(others)
    known = [(row, "other") for row in written_of([facts.opened("late", envelope=facts.envelope(run_id="other"))])]
    moved = [(row, run) for run in ("other", "own") for row in written_of(group("moved", [0.0, 1.0], run=run))]
    rows = [(row, None) for row in late] + own + others + known + moved
    with closing(KafkaLog(log_settings).producer()) as producer:
        for (topic, key, value), run in rows:
            item = Outgoing(topic=TOPICS[topic], key=key, value=value, headers=of_run(run))
            producer.produce(item).result()
        views = [PoolView(log_settings, keep=lambda row: row.run_id in (None, "own"), run=run) for run in (None, "own")]
        for view in views:
            view.start()
        try:
            for view in views:
                view.wait_caught_up(60)
            everybodys, owns = views
            assert [one for one in owns.groups() if one.group_id != "moved"] == everybodys.groups()
            assert [one.group_id for one in owns.groups()] == ["moved", *(f"own-{number}" for number in range(4))]
            assert (everybodys.changes, owns.changes) == (len(rows), len(late) + len(own) + len(moved) // 2)
        finally:
            for view in views:
                view.stop()


@pytest.mark.kafka
def test_a_trainers_view_goes_on_behind_the_rows_of_others(log_settings, tmp_path):
    """Rows that it passed over are not fetched again, groups that it trained stay forgotten, and another run has its own file."""
    settings = log_settings.model_copy(update={"views_dir": tmp_path})
    create_topics(settings)
    rows = [
        (row, run)
        for run, groups in (("own", 4), ("other", 60))
        for number in range(groups)
        for row in written_of(group(f"{run}-{number}", [0.0, 1.0], run=run))
    ]
    assert len(rows) > SAVED_AT_END_ROWS
    with closing(KafkaLog(settings).producer()) as producer:
        for (topic, key, value), run in rows:
            producer.produce(Outgoing(topic=TOPICS[topic], key=key, value=value, headers=of_run(run))).result()
    with trainers_view(settings) as view:
        assert view.changes == sum(run == "own" for _, run in rows)
        view.forget("own-2")
    for _ in range(2):
        with trainers_view(settings) as view:
            assert view.changes == 0
            assert sum(view.start_offsets.values()) == len(rows)
            assert [one.group_id for one in view.groups()] == ["own-0", "own-1", "own-3"]
            assert all(view.members(one) for one in view.groups())
    with trainers_view(settings, "other") as view:
        assert view.changes == sum(run == "other" for _, run in rows)


@contextmanager
def trainers_view(settings, run: str = "own"):
    view = PoolView(settings, keep=lambda row: row.run_id in (None, run), run=run, role=f"trainer-{run}.")
    view.start()
    try:
        view.wait_caught_up(60)
        yield view
    finally:
        view.stop()


def asked(settings, views_dir: Path, group: str | None = None) -> int:
    """The rows that a view read from the log, which has what one without a file has."""
    kept, plain = (
        PoolView(settings.model_copy(update={"views_dir": each}), listed=True, group=group)
        for each in (views_dir, None)
    )
    for view in (kept, plain):
        view.start()
    try:
        for view in (kept, plain):
            view.wait_caught_up(60)
        if group is None:
            for kind in ("groups", "trajectories", "steps"):
                assert kept.ask(partial(everything, kind=kind)) == plain.ask(partial(everything, kind=kind))
        assert kept.ask(lambda rows: rows.group(group or "g1")) == plain.ask(lambda rows: rows.group(group or "g1"))
        return kept.changes
    finally:
        for view in (kept, plain):
            view.stop()
