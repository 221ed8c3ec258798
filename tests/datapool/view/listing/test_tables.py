"""A listed view answers what a scan answers, and has the rows of a bare one, whatever the rows and the filter are."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from claw_r1.consumers.pool.perspective import perspective_of
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.feedback import HUMAN
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.listing.pages import count, facets, times
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.query import find_groups, find_steps, find_trajectories, stats
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import GroupRecord, VersionSpan
from tests import facts
from tests.datapool.view.listing.test_pages import everything
from tests.datapool.view.scan import Scan, scorers_apart
from tests.trainer.pooled import SETTINGS, rows_of

TAGS = ["hard", "har", "Maths", "of-people", "nobody's"]
FINDERS = {"groups": find_groups, "trajectories": find_trajectories, "steps": find_steps}
FILTERS = st.builds(
    PoolFilter,
    channel=st.sampled_from([None, None, None, "train", "probe"]),
    group=st.sampled_from([None, None, None, "g", "a/b", "x"]),
    trajectory=st.sampled_from([None, None, None, "t", "u", "nobody"]),
    agent=st.sampled_from([None, None, None, "ann", "bob"]),
    run=st.sampled_from([None, None, None, "r1", "nobody"]),
    task=st.sampled_from([None, None, None, '"hard task"', "other"]),
    status=st.sampled_from([None, None, None, "open", "completed", "evicted"]),
    reason=st.sampled_from([None, None, None, "open", "curated_out", "no_call", "evicted"]),
    finish=st.sampled_from([None, None, None, "stop", "length"]),
    time=st.sampled_from([None, None, None, "1970-01-01", "1970-01-01T00:01", "2026-01-01"]),
    tag=st.lists(st.sampled_from(TAGS), max_size=2).map(tuple),
    trainable=st.sampled_from([None, None, True, False]),
    ready=st.sampled_from([None, None, True, False]),
    quality_min=st.sampled_from([None, None, 0.2, 0.5]),
    quality_max=st.sampled_from([None, None, 0.3]),
    score=st.sampled_from([(), (), ("s@1>=0.3",), ("s@1<=0.6", "s@1>=0")]),
    reward_min=st.sampled_from([None, None, 0.0, 0.5]),
    reward_max=st.sampled_from([None, None, 0.5]),
    version_min=st.sampled_from([None, None, 0, 2]),
    version_max=st.sampled_from([None, None, 1]),
    text=st.sampled_from([None, None, None, "", "T", "HARD", "löng", "a/", "nötE"]),
)


def random_facts(seed: int, count_: int = 60):
    """Facts of few ids, so that they meet; some rows come without a call, some are evicted."""
    dice = random.Random(seed)
    for _ in range(count_):
        group, trajectory, call = (
            dice.choice(["g", "h", "a/b"]),
            dice.choice(["t", "u", "Löng"]),
            dice.choice(["c", "d"]),
        )
        tags = tuple(dice.sample(TAGS[:3], dice.randint(0, 2)))
        agent, channel = dice.choice([None, "ann", "bob"]), dice.choice(["train", "probe", ""])
        number = dice.choice([0.0, 0.25, 0.5, 1.0])
        source = dice.choice(["judge", "rule", f"{HUMAN}ann", f"{HUMAN}bob"])
        yield dice.choice(
            [
                facts.call(group, trajectory, call, agent=agent, channel=channel or "train", tags=tags),
                facts.call(group, trajectory, call, agent=agent, received_us=dice.choice([0, 9, 60_000_001])),
                facts.call(
                    group,
                    trajectory,
                    call,
                    finish_reason=dice.choice(["stop", "length"]),
                    envelope=facts.envelope(run_id="r1"),
                ),
                facts.opened(group, tags=tags, agent=agent, task=dice.choice([None, '"hard task"'])),
                facts.started(group, trajectory, tags=tags, metadata=dice.choice([None, '{"a": "nötE"}'])),
                facts.completed(group, trajectory, calls=dice.randint(0, 2), reward=number),
                facts.reward(group, trajectory, number, source=source, name="style"),
                facts.reward(group, trajectory, number, source=source, call_id=call, name="thumb"),
                facts.curated(group, trajectory, call, quality=number, note="a nöte", scores={"s@1": number}),
                facts.curated(group, trajectory, call, trainable=False, tags=("of-people",)),
                facts.evicted(group, trajectory) if dice.random() < 0.3 else facts.call(group, trajectory, call),
                facts.evicted_group(group) if dice.random() < 0.1 else facts.call(group, trajectory, call),
            ]
        )


def views(history, dice: random.Random) -> tuple[PoolRows, PoolRows, Scan]:
    """The same rows in a bare view, a listed one and a scan; topics run ahead of each other, and some groups are forgotten."""
    bare, listed, scan = PoolRows(), PoolRows(listed=True), Scan()
    log = MemoryLog(SETTINGS)
    written = list(rows_of(history, lambda item: log.append([item])[0]))
    lag = {topic: dice.choice([0, 0, 40]) for topic in sorted({row[1] for row in written})}
    late = sorted(range(len(written)), key=lambda n: n + lag[written[n][1]])
    for n in late[: dice.choice([len(late), len(late) // 2])]:
        _, topic, key, value = written[n]
        for rows in (bare, listed, scan):
            rows.apply(topic, key, value)
    if dice.random() < 0.2:
        for rows in (bare, listed, scan):
            rows.forget("h")
    return bare, listed, scan


@given(st.integers(0, 10_000), st.lists(FILTERS, min_size=1, max_size=8))
def test_a_listed_view_finds_what_a_scan_finds(seed, filters):
    """Rows, their order, pages behind a row and all counts, with rows that are late, tombstones and forgotten groups."""
    _, listed, scan = views(random_facts(seed), random.Random(seed))
    for each in filters:
        assert stats(listed, each) == scan.stats(each)
        for kind, find in FINDERS.items():
            rows = scan.find(kind, each)
            assert find(listed, each) == rows
            assert count(listed, kind, each) == len(rows)
            for row in rows[:2]:
                names = ("group_id", "trajectory_id", "call_id")[: {"groups": 1, "trajectories": 2, "steps": 3}[kind]]
                ids = tuple(getattr(row, name) for name in names)
                assert find(listed, each, ids, 3) == scan.find(kind, each, ids, 3)


@given(st.integers(0, 10_000))
def test_a_listed_view_has_the_rows_of_a_bare_one(seed):
    """Whole groups, members, steps and rows by name: where they stand does not change them."""
    bare, listed, _ = views(random_facts(seed), random.Random(seed))
    assert listed.groups() == bare.groups()
    assert list(listed.group_rows()) == list(bare.group_rows())
    assert list(listed.trajectory_rows()) == list(bare.trajectory_rows())
    assert listed.trajectories_named("t") == bare.trajectories_named("t")
    for group in bare.groups():
        assert listed.members(group) == bare.members(group)
        assert listed.trajectories(group) == bare.trajectories(group)
    assert listed.group_row("g") == bare.group_row("g")


@given(st.lists(st.tuples(st.sampled_from("tuv"), st.sampled_from("abc"), st.integers(0, 3)), max_size=12))
def test_whose_samples_they_are_is_that_of_all_rows(calls):
    """The run of most trajectories and its latest version, without a row decoded; mixed ones and tombstones, too."""
    spans = [(name, (VersionSpan(run_id=run, version=version, start=0, end=3),)) for name, run, version in calls]
    history = [facts.call("g", name, f"c{n}", spans=each) for n, (name, each) in enumerate(spans)]
    bare, listed, _ = views([*history, facts.evicted("g", "t")], random.Random(len(calls)))
    records = [row for row in bare.trajectory_rows() if row.policy_run_id not in (None, "mixed")]
    runs = sorted({row.policy_run_id for row in records})
    run = max(runs, key=lambda name: sum(row.policy_run_id == name for row in records), default="")
    version = max((row.max_version for row in records if row.policy_run_id == run), default=0)
    listed.trajectory_rows = None
    asked = perspective_of(listed, RunIndex(), BatchSpec())
    assert (asked.run_id, asked.version) == (run, version)


@given(st.integers(0, 10_000))
def test_columns_that_other_rows_make(seed):
    """Tokens, quality, the start and doubt of a trajectory are those of its calls and of its scorers' ranks."""
    bare, listed, scan = views(random_facts(seed), random.Random(seed))
    records = list(bare.trajectory_rows())
    apart = scorers_apart(records)
    for row, record in zip(everything(listed, "trajectories"), records, strict=True):
        steps = scan.find("steps", PoolFilter(group=record.group_id, trajectory=record.trajectory_id))
        steps = [step for step in steps if step.trajectory_id == record.trajectory_id]
        qualities = [s.curation.quality for s in steps if s.curation and s.curation.quality is not None]
        mean = next((group.reward_mean for group in scan.find("groups", PoolFilter(group=record.group_id))), None)
        apart_from_mean = None if None in (record.return_total, mean) else record.return_total - mean
        assert row.columns["distance"] == apart_from_mean
        assert row.columns["response_tokens"] == sum(step.response_length for step in steps)
        last = max(steps, key=lambda step: (step.first_received_us, step.call_id), default=None)
        assert row.columns["finish"] == (last and last.finish_reason)
        assert row.columns["tokens"] == sum(step.prompt_length + step.response_length for step in steps)
        assert (row.columns["quality"] is None) == (not qualities)
        assert abs((row.columns["quality"] or 0) - sum(qualities) / max(1, len(qualities))) < 1e-9
        people = max([_spread(record.rewards), *(_spread(step.rewards) for step in steps)])
        assert abs(row.columns["doubt"] - people - apart.get(row.ids, 0.0)) < 1e-9


@given(st.integers(0, 10_000), st.booleans())
def test_columns_of_a_group_are_those_of_its_members(seed, has_room):
    """A trajectory that came after its group was closed counts in no column; of a row without room for all members, every one does."""
    history = [facts.closed("g", ["t"]), facts.call("g", "u", "c"), *random_facts(seed)]
    log, listed, scan = MemoryLog(SETTINGS), PoolRows(listed=True), Scan()
    for _, topic, key, value in rows_of(history, lambda item: log.append([item])[0]):
        row = None if value is None else decode(value)
        if isinstance(row, GroupRecord) and not has_room:
            row = structs.replace(row, members_left_out=1)
        for rows in (listed, scan):
            rows.apply(topic, key, None if row is None else encode(row))
    doubts = {row.ids: row.columns["doubt"] for row in everything(listed, "trajectories")}
    for row, record in zip(everything(listed, "groups"), scan.find("groups", PoolFilter()), strict=True):
        names = {member.trajectory_id for member in record.members}
        of_group = PoolFilter(group=record.group_id)
        steps, trajectories = (
            [one for one in scan.find(kind, of_group) if not has_room or one.trajectory_id in names]
            for kind in ("steps", "trajectories")
        )
        qualities = [s.curation.quality for s in steps if s.curation and s.curation.quality is not None]
        assert row.columns["calls"] == sum(len(one.calls) for one in trajectories)
        assert row.columns["tokens"] == sum(step.prompt_length + step.response_length for step in steps)
        assert row.columns["response_tokens"] == sum(step.response_length for step in steps)
        assert (row.columns["quality"] is None) == (not qualities)
        assert abs((row.columns["quality"] or 0) - sum(qualities) / max(1, len(qualities))) < 1e-9
        assert row.columns["doubt"] == max((doubts[one.group_id, one.trajectory_id] for one in trajectories), default=0)


def _spread(slots) -> float:
    names = {}
    for slot in slots:
        if slot.source.startswith(HUMAN) and slot.value is not None:
            names.setdefault((slot.step_index, slot.name), []).append(slot.value)
    return min(1.0, max((max(values) - min(values) for values in names.values()), default=0.0))


@given(st.integers(0, 10_000), FILTERS)
def test_counts_per_value_are_those_of_the_filter_with_it(seed, each):
    """A number beside a value of a filter is how many rows that filter finds with it."""
    _, listed, _ = views(random_facts(seed), random.Random(seed))
    for kind in FINDERS:
        of_kind = {
            "groups": ("channel", "run", "task", "reasons"),
            "trajectories": ("channel", "agent", "run", "task", "status", "finish", "reasons"),
            "steps": ("channel", "agent", "run", "task", "status", "finish", "reasons"),
        }[kind]
        for name in of_kind:
            asked = name.removesuffix("s") if name == "reasons" else name
            if getattr(each, asked) is None:
                for value, many in facets(listed, kind, each, name).items():
                    assert count(listed, kind, replace(each, **{asked: value})) == many
        if each.time is None:
            for span, many in times(listed, kind, each, 2).items():
                assert count(listed, kind, replace(each, time=span)) == many
    steps = facets(listed, "steps", PoolFilter(), "tags")
    assert steps == {tag: count(listed, "steps", PoolFilter(tag=(tag,))) for tag in TAGS if tag in steps}
