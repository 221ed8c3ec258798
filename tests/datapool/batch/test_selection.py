"""Which groups make a batch; selecting again and again while rows come: of one moment, and without reading what did not change."""

import random
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from claw_r1.datapool.batch.candidates import Members
from claw_r1.datapool.batch.members import plan_bytes
from claw_r1.datapool.batch.selection import Selection, Selector, select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.events import Event, GroupRecord
from tests import facts
from tests.datapool.batch.selecting import SPACIOUS, SPEC, chosen, selected
from tests.trainer.pooled import RUN, SETTINGS, group, rows_of

NAMES = {topic.name: topic for topic in TOPICS}
Written = tuple[str, bytes, bytes | None]
WEIGHTED = BatchSpec(groups_per_batch=1, group_size=2, reward_weights={"*": 1.0})
"""Under weights a return is added up from the rewards of steps, so that it shows whose steps they are."""


def written(history: Iterable[Event]) -> list[Written]:
    """Rows in the order in which the streams write them, one flush per fact."""
    log = MemoryLog(SETTINGS)
    return [row for _, *row in rows_of(history, lambda item: log.append([item])[0])]  # type: ignore[misc]  # three are left


def changing(changes: int, groups: int = 1) -> list[Event]:
    """Groups of which a step is judged again and again."""
    names = [f"g{number}" for number in range(groups)]
    made = [fact for name in names for fact in group(name, [0.0, 1.0])]
    for n in range(1, changes):
        made += [facts.reward(name, "t0", float(n), call_id="c0", revision=n, name="style") for name in names]
    return made


def of_one_moment(selection: Selection) -> bool:
    """Whether each member's return, which its steps say, is that of its row."""
    members = [member for one in selection.chosen for member in one.members]
    return all(member.earned is not None and member.earned.total == member.record.return_total for member in members)


class Restless:
    """A pool that takes one more row in before every other question or so."""

    def __init__(self, rows: PoolRows, coming: Iterator[Written]) -> None:
        self._rows = rows
        self._coming = coming
        self._dice = random.Random(0)
        self.over = False

    def __getattr__(self, name: str) -> object:
        if self._dice.random() < 0.5:
            row = next(self._coming, None)
            self.over = row is None
            if row is not None:
                self._rows.apply(*row)
        return getattr(self._rows, name)


def test_what_is_planned_is_of_one_moment() -> None:
    """Rows that come between two questions of a selection never put a return beside another return's row."""
    before, after = len(written(changing(1))), written(changing(100))
    rows = PoolRows()
    for row in after[:before]:
        rows.apply(*row)
    restless = Restless(rows, iter(after[before:]))
    planned = 0
    while not restless.over:
        selection = select(restless, WEIGHTED, 0, RUN, ())  # type: ignore[arg-type]  # whatever selection asks
        planned += len(selection.chosen)
        assert of_one_moment(selection)
    assert planned > 10


def test_a_view_that_is_written_to_gives_members_of_one_moment() -> None:
    """A follower's thread applies rows while another one selects."""
    log, rows = MemoryLog(SETTINGS), written(changing(40, groups=10))
    spec = WEIGHTED.model_copy(update={"groups_per_batch": 10})
    view = PoolView(SETTINGS, open_reader=lambda: log.reader(TOPICS))
    view.start()
    stop, looked = threading.Event(), threading.Semaphore(0)

    def write() -> None:
        for at, (topic, key, value) in enumerate(rows):
            log.append([Outgoing(topic=NAMES[topic], key=key, value=value)])
            if not at % 10:
                looked.acquire()
                time.sleep(0.005)  # most groups are whole at most times
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not stop.wait(0.001):  # else a thread that only reads keeps the interpreter from the one that writes
            assert of_one_moment(select(view, spec, 0, RUN, ()))
            looked.release()
        view.wait_caught_up(10)
        assert select(view, spec, 0, RUN, ()).complete
    finally:
        looked.release(len(rows))
        writer.join()
        view.stop()


SPECS = [
    BatchSpec(groups_per_batch=2, group_size=2, staleness_max=1),
    BatchSpec(groups_per_batch=1, group_size=2, staleness_max=1, order="newest", zero_variance="drop"),
    BatchSpec(groups_per_batch=9, group_size=2, staleness_max=1, order="priority", response_tokens_max=25),
    BatchSpec(groups_per_batch=2, group_size=2, quality_min=0.5, quality_missing="wait", tags_exclude=("leak",)),
    BatchSpec(groups_per_batch=2, group_size=2, tags=("maths",), reward_weights={"judge/style": 2.0}),
]


def some_groups(dice: random.Random) -> list[Event]:
    """Groups of all fates, and what changes some of them later."""
    made: list[Event] = []
    for number in range(6):
        tags = dice.choice([(), ("maths",), ("leak",), (f"priority:{number}",)])
        rewards = [dice.choice([0.0, 1.0, None]) for _ in range(dice.choice([2, 3]))]
        run = dice.choice([RUN, RUN, RUN, "other"])
        made += group(f"g{number}", rewards, version=dice.randrange(3), run=run, at_us=dice.randrange(4), tags=tags)
    for _ in range(12):
        place = f"g{dice.randrange(6)}", f"t{dice.randrange(2)}"
        made.append(
            dice.choice(
                [
                    facts.reward(*place, dice.random(), call_id="c0", source="judge", name="style"),
                    facts.curated(*place, "c0", quality=dice.random(), tags=dice.choice([(), ("leak",), ("maths",)])),
                    facts.evicted(*place),
                    facts.closed(place[0], ["t0", "t1"]),
                ]
            )
        )
    return made


@pytest.mark.parametrize("spec", SPECS)
def test_a_selector_that_remembers_selects_what_a_new_one_selects(spec: BatchSpec) -> None:
    """Whatever comes, is settled or forgotten, and however the version moves: chosen, reasons and completeness are equal."""
    for seed in range(8):
        dice = random.Random(seed)
        rows, settled, version = PoolRows(), set[str](), 0
        selector = Selector(rows, spec, RUN)
        for row in written(some_groups(dice)):
            rows.apply(*row)
            if dice.random() < 0.1:
                version = max(0, version + dice.choice([1, 1, -1]))
            if dice.random() < 0.02:
                settled.add(gone := f"g{dice.randrange(6)}")
                rows.forget(gone)
            if dice.random() < 0.02:
                settled ^= {f"g{dice.randrange(6)}"}
            if dice.random() < 0.5:
                assert selector.select(version, settled) == select(rows, spec, version, RUN, settled)


class Counting:
    """A pool that counts the groups whose members were read."""

    def __init__(self, rows: PoolRows) -> None:
        self._rows = rows
        self.read: list[str] = []

    def groups(self) -> list[GroupRecord]:
        return self._rows.groups()

    def members(self, record: GroupRecord) -> Members | None:
        self.read.append(record.group_id)
        return self._rows.members(record)


def test_waiting_reads_only_what_changed() -> None:
    """Looking again reads nothing, with a new version neither; a group that changed is read once, behind a full batch, too."""
    names = [f"g{number}" for number in range(5)]
    told = [fact for at, name in enumerate(names) for fact in group(name, [0.0, 1.0], at_us=at)]
    rows = PoolRows()
    for row in written(told):
        rows.apply(*row)
    pool = Counting(rows)
    selector = Selector(pool, BatchSpec(groups_per_batch=2, group_size=2, staleness_max=1), RUN)
    first = selector.select(0, ())
    assert (sorted(pool.read), first.complete) == (names, True)
    pool.read.clear()
    assert selector.select(0, ()) is first
    assert selector.select(1, ()) == first
    assert pool.read == []
    for row in written([*told, facts.reward("g4", "t0", 1.0, source="judge")])[-3:]:
        rows.apply(*row)
    selector.select(1, ())
    assert pool.read == ["g4"]
    selector.select(1, {"g0"})
    assert pool.read == ["g4", "g2"], "its turn has come"


def test_first_in_first_out_and_the_rest_is_next() -> None:
    """The groups whose last fact is oldest make the batch; later ones wait for the next, with that reason."""
    history = [e for name, at in (("c", 3), ("a", 2), ("b", 1)) for e in group(name, [0.0, 1.0], at_us=at)]
    selection = selected(history)
    assert chosen(selection) == ["b", "a"]
    assert selection.left_out == {"c": "next_batch"}
    assert selection.complete


def test_a_short_batch_is_not_complete() -> None:
    """Fewer ready groups than the spec asks for: wait."""
    selection = selected(group("a", [0.0, 1.0]))
    assert chosen(selection) == ["a"]
    assert not selection.complete


def test_a_group_is_planned_once() -> None:
    """What the run planned before is neither chosen again nor reported."""
    selection = selected(group("a", [0.0, 1.0]) + group("b", [0.0, 1.0]), planned={"a"})
    assert chosen(selection) == ["b"]
    assert "a" not in selection.left_out


def test_the_token_bound_makes_a_batch_complete() -> None:
    """A batch that is full of tokens does not wait for more groups."""
    history = group("a", [0.0, 1.0], at_us=1) + group("b", [0.0, 1.0], at_us=2)
    selection = selected(history, SPEC.model_copy(update={"response_tokens_max": 15}))
    assert chosen(selection) == ["a"]
    assert selection.complete


def test_a_plan_stops_where_its_record_would_get_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of fewer groups is a whole one then; the next begins with the group that found no room."""
    history = [event for at, name in enumerate("abcd") for event in group(name, [0.0, 1.0], at_us=at)]
    one = plan_bytes(selected(history, SPACIOUS).chosen[0], SPACIOUS)
    monkeypatch.setattr(bounds, "PLAN_BYTES_MAX", 3 * one)
    selection = selected(history, SPACIOUS)
    assert (chosen(selection), selection.complete) == (["a", "b", "c"], True)
    assert selection.left_out == {"d": "next_batch"}
