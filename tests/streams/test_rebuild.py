"""A rebuilt generation is the live pool, byte for byte, at the same offsets; killed or cut short it says so or goes on."""

import os
import random
import signal
import sys

import pytest

from claw_r1.datapool.view.view import PoolView
from claw_r1.eventlog.errors import Fenced, HistoryCut
from claw_r1.eventlog.kafka.admin import create_topics, delete_records, end_offsets
from claw_r1.eventlog.kafka.reader import committed_offsets
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import GroupRecord
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from claw_r1.streams import rebuild as rebuilding
from claw_r1.streams.errors import PastTarget
from claw_r1.streams.ownership import group_name, open_producer
from claw_r1.streams.rebuild import rebuild
from tests import children, facts, oracle
from tests.soak import only_in_soak
from tests.streams import pool
from tests.streams.pool import ROUNDS

pytestmark = pytest.mark.kafka


@pytest.fixture
def second(log_settings: LogSettings) -> LogSettings:
    """The next generation of the same log."""
    return log_settings.model_copy(update={"generation": 2})


def history(groups=12, seed=0):
    """Episodes with everything that a log gets: shuffled, some of it twice, some erased, some poison."""
    events = [event for n in range(groups) for event in pool.episode(f"g{n}", f"t{n % 3}")]
    events += [facts.evicted("g1", "t1"), facts.curated("g2", "t2", "t2-0", quality=0.5), facts.opened("g3")]
    dice = random.Random(seed)
    events += dice.sample(events, 8)
    dice.shuffle(events)
    poison = [
        Outgoing(topic=CALLS, key=group_key("g0"), value=value)
        for value in (b"\x01nonsense", None, encode(facts.reward("g0", value=float("nan"))))
    ]
    return [*map(pool.outgoing, events), *poison]


def ends(settings):
    return end_offsets(settings, [CALLS, REWARDS])


def quietly(done, total):
    assert done <= total


def test_the_rebuilt_generation_is_the_live_pool_byte_for_byte(log_settings, second, start):
    """At one offset vector both are equal, however the live one came about; the rebuild wrote no dead letter, and new
    streams go on where it ended."""
    items, killed = history(), start()
    pool.publish(log_settings, items[:30])
    pool.wait_for("the first rows", lambda: bool(pool.pool(log_settings)))
    killed.signal(signal.SIGKILL)
    live = start()
    pool.publish(log_settings, items[30:])
    pool.wait_for_oracle(log_settings)
    assert live.stop() == 0
    letters = len(pool.letters(log_settings))

    to = ends(log_settings)
    done = rebuild(second, to, quietly, flush_facts=7)
    assert pool.pool(second) == pool.pool(log_settings)
    assert done.outcomes == {"folded": sum(to.values()) - 3, "poison": 3}
    assert len(pool.letters(log_settings)) == letters == 3
    group = group_name(second.catalogue())
    assert committed_offsets(second, group, [CALLS, REWARDS], range(second.partitions)) == to

    again = rebuild(second, to, quietly)
    assert (again.rows, again.outcomes, again.manifest()) == (0, {}, done.manifest())

    heir = start(settings=second)
    pool.publish(log_settings, map(pool.outgoing, pool.episode("late", "t")))
    pool.wait_for_oracle(second)
    assert "streams_healed" not in heir.log()
    assert heir.stop() == 0
    assert len(pool.letters(log_settings)) == letters
    with pytest.raises(PastTarget, match="generation 2 is past"):
        rebuild(second, to, quietly)


def test_a_rebuild_up_to_offsets_leaves_out_what_came_later(log_settings, second):
    """The vector decides, fact by fact."""
    items = [item for item in history() if item.value is not None]
    pool.publish(log_settings, items[:40])
    to = ends(log_settings)
    expected = pool.expected(log_settings)
    pool.publish(log_settings, items[40:])
    rebuild(second, to, quietly)
    assert pool.pool(second) == expected != pool.expected(log_settings)


def test_a_reader_of_a_generation_sees_that_generation(log_settings, second):
    """Cut-over is one setting: the view follows its generation's topics, and no row of another one comes in."""
    pool.publish(log_settings, history())
    rebuild(second, ends(log_settings), quietly)
    pool.publish(log_settings, map(pool.outgoing, pool.episode("late", "t")))
    rebuild(log_settings, ends(log_settings), quietly)
    seen = {settings.generation: groups_seen(settings) for settings in (log_settings, second)}
    assert [record for record in seen[1] if record.group_id != "late"] == seen[2]
    assert len(seen[1]) == len(seen[2]) + 1
    assert seen[2] == sorted((one for one in pool.decoded(second) if isinstance(one, GroupRecord)), key=by_id)


def by_id(record):
    return record.group_id


def groups_seen(settings):
    groups_of(settings)  # to the marks of the last transaction, which come after the answer
    view = PoolView(settings)
    view.start()
    try:
        view.wait_caught_up(20)
        return view.groups()
    finally:
        view.stop()


def test_killed_in_the_middle_it_goes_on_where_it_was(log_settings, second):
    """kill -9 leaves whole transactions; the second attempt reads only what the first had not folded."""
    pool.publish(log_settings, history(groups=120))
    total = sum(ends(log_settings).values())
    command = [
        sys.executable,
        "-m",
        "claw_r1.claw.cli",
        "rebuild",
        "--prefix",
        log_settings.prefix,
        "--flush-facts",
        "1",  # so that the first rows are seen long before the last
    ]
    env = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": log_settings.bootstrap_servers}
    process = children.start(command, cwd=pool.ROOT, env=env)
    try:
        pool.wait_for("the first rows", lambda: exists(second) and bool(pool.pool(second)))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        children.end(process)
    done = rebuild(second, ends(log_settings), quietly)
    assert 0 < sum(done.outcomes.values()) < total
    assert pool.pool(second) == pool.expected(log_settings)


def exists(settings):
    from claw_r1.eventlog.kafka.admin import describe_topics

    names = {state.name for state in describe_topics(settings)}
    return all(settings.catalogue().name(topic) in names for topic in settings.catalogue())


def test_whoever_opens_the_generation_later_stops_the_rebuild(log_settings, second):
    """Streams of the generation and a rebuild share transactional ids: two writers are impossible, not just unlikely."""
    pool.publish(log_settings, history())
    thieves = []

    def steal(done, total):
        thieves.extend(open_producer(second, partition) for partition in range(second.partitions))

    with pytest.raises(Fenced):
        rebuild(second, ends(log_settings), steal, flush_facts=5)
    for thief in thieves:
        thief.close()
    rebuild(second, ends(log_settings), quietly)
    assert pool.pool(second) == pool.expected(log_settings)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_facts_that_retention_removed_are_named(log_settings, second, seed):
    """A rebuild from half a history would be a pool that nobody can trust: refused, with every missing range. The pool in
    use loses nothing and goes on."""
    pool.publish(log_settings, history(seed=seed))
    to, before = ends(log_settings), pool.facts_in_log(log_settings)
    rebuild(log_settings, to, quietly)
    dice = random.Random(seed)
    cuts = {place: dice.randint(1, end) for place, end in to.items() if end}
    delete_records(log_settings, cuts)
    with pytest.raises(HistoryCut) as refused:
        rebuild(second, to, quietly)
    missing = [f"{topic}[{number}] 0..{end}" for (topic, number), end in sorted(cuts.items())]
    assert str(refused.value).partition("no longer holds ")[2] == ", ".join(missing)
    assert pool.pool(second) == {}

    pool.publish(log_settings, map(pool.outgoing, [*pool.episode("late", "t"), facts.reward("g0", "t0", name="late")]))
    rebuild(log_settings, ends(log_settings), quietly)
    since = [(fact, at) for fact, at in pool.facts_in_log(log_settings) if at.offset >= to[at.topic, at.partition]]
    assert pool.pool(log_settings) == oracle.pool_of([*before, *since])


def test_a_rebuild_begun_before_the_cut_is_finished_after_it(log_settings, second):
    """What the generation has folded it does not need again."""
    pool.publish(log_settings, history())
    to = ends(log_settings)
    expected = pool.expected(log_settings)
    place = next(place for place, end in sorted(to.items()) if end > 3)
    rebuild(second, {**dict.fromkeys(to, 0), place: 3}, quietly)
    delete_records(log_settings, {place: 3})
    pool.wait_for("its marks, which come after the answer", lambda: rebuilding.positions(second, to)[place] == 3)
    rebuild(second, to, quietly)
    assert pool.pool(second) == expected


@only_in_soak
def test_a_generation_is_cut_over_while_ten_views_follow(log_settings, second, tmp_path, monkeypatch):
    """Those of the old one keep what it has; those of the new one, begun before it had a row or with the files of the old one beside them, end at
    the pool."""
    monkeypatch.setattr("claw_r1.datapool.view.view.SAVED_AT_END_ROWS", 1)
    items = history()
    pool.publish(log_settings, items[:40])
    rebuild(log_settings, ends(log_settings), quietly)
    create_topics(second)
    kept = {"views_dir": tmp_path}
    of_views = [
        (each, each.model_copy(update=update)) for each in (log_settings, second) for update in ({}, {}, {}, kept, kept)
    ]
    views = [PoolView(settings, listed=True) for _, settings in of_views]
    for view in views:
        view.start()
    try:
        rebuild(second, ends(log_settings), quietly, flush_facts=7)
        pool.publish(log_settings, items[40:])
        rebuild(second, ends(log_settings), quietly, flush_facts=7)
        assert groups_of(log_settings) != groups_of(second)
        for view, (settings, _) in zip(views, of_views, strict=True):
            assert seen(view) == groups_of(settings)
    finally:
        for view in views:
            view.stop()
    assert len(list(tmp_path.glob("*.view"))) == 2, "a file of each generation"
    again = PoolView(second.model_copy(update=kept), listed=True)
    again.start()
    try:
        assert seen(again) == groups_of(second)
        assert (again.changes, sum(again.start_offsets.values()) > 0) == (0, True)
    finally:
        again.stop()


def seen(view):
    view.wait_caught_up(60)
    return sorted(map(repr, view.ask(lambda rows: list(rows.group_rows()))))


def groups_of(settings):
    return sorted(repr(one) for one in pool.decoded(settings) if isinstance(one, GroupRecord))
