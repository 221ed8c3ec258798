"""Long histories in small flushes: rows that are kept up change by change are those that are made at once."""

import random as chance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool import immutable_map, sorted_columns
from claw_r1.datapool.fold import project
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import changes, image
from claw_r1.datapool.fold.restore import restore
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import PASSED_BY, usable
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import CallCaptured, Event
from tests import facts, oracle
from tests.datapool.fold.test_bounds import small_records

TRAJECTORIES = ("t", "u", "v", "w")


def small_parts(patch: pytest.MonkeyPatch) -> None:
    """So that a history of some dozen facts has several leaves, and mappings that share."""
    patch.setattr(sorted_columns, "LEAF_KEYS", 2)
    patch.setattr(immutable_map, "COPIED_MAX", 4)


def made_at_once(states: dict[str, GroupState]) -> oracle.PoolBytes:
    return {tuple(key): encode(record) for state in states.values() for key, record in project.project(state).items()}


def flushed(log: list[tuple[Event, facts.FactPosition]], random: chance.Random) -> oracle.PoolBytes:
    """What a worker writes of these facts in flushes of 1 to 50, killed now and then. Each flush is compared on the way."""
    states: dict[str, GroupState] = {}
    images: dict[str, project.GroupImage] = {}
    written: oracle.PoolBytes = {}
    rest = list(log)
    while rest:
        flush, rest = rest[: (size := random.choice([1, 2, 5, 20, 50]))], rest[size:]
        touched = {fact.group_id for fact, _ in flush}
        for fact, position in flush:
            states[fact.group_id] = fold(states.get(fact.group_id), fact, position)
        for name in touched:
            images[name], rows = changes(images.get(name), states[name])
            written |= {tuple(key): row and row.value for key, row in rows.items()}
            assert all(row is None or encode(row.record) == row.value for row in rows.values())
        written = {key: value for key, value in written.items() if value is not None}
        assert written == made_at_once(states)
        if random.random() < 0.1:
            states = restore(decode(value) for value in written.values())
            images = {name: image(state) for name, state in states.items()}
    return written


def expected(log: list[tuple[Event, facts.FactPosition]]) -> oracle.PoolBytes:
    return oracle.pool_of(log)


@given(facts.logs(), st.randoms(use_true_random=False), st.booleans())
def test_any_facts_in_small_flushes(log, random, small):
    """Of any kind and any order, some of them twice, with room for everything or for little."""
    log = [(fact, position) for fact, position in log if type(fact) not in PASSED_BY]
    delivered = [*log, *random.choices(log, k=5)] if log else []
    random.shuffle(delivered)
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        if small:
            with small_records():
                flushed(delivered, random)
        else:
            assert flushed(delivered, random) == expected(log)


@given(st.integers(0, 2**32))
def test_long_histories_in_small_flushes(seed):
    """Trees of calls whose prompts hold or do not, retried, judged by id and index, out of order; members that come and go."""
    random = chance.Random(seed)
    log = facts.placed(list(history(random)))
    delivered = sorted([*log, *random.choices(log, k=9)], key=lambda item: item[1].offset + random.uniform(0, 30))
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        assert flushed([(usable(fact), position) for fact, position in delivered], random) == expected(log)


def history(random: chance.Random, length: int = 150):
    calls: dict[str, list[CallCaptured]] = {name: [] for name in TRAJECTORIES}
    for number in range(length):
        name = random.choice(TRAJECTORIES)
        known = calls[name]
        kind = random.choices("crqosxfge", [60, 25, 5, 2, 2, 6, 3, 1, 0.3])[0]
        call_id = random.choice(known).call_id if known else "nobody"
        if kind == "c":
            calls[name].append(captured(random, name, number, known))
            yield calls[name][-1]
        elif kind == "r":
            subject = random.choice([{"call_id": call_id}, {"step_index": random.randrange(20)}, {}])
            value = random.choice([None, 0.5, random.random()])
            yield facts.reward("g", name, value, revision=number, envelope=facts.envelope(at_us=number), **subject)
        elif kind == "q":
            yield facts.curated("g", name, call_id, trainable=random.choice([True, False]), revision=number)
        elif kind == "o":
            yield facts.opened("g", expected_size=random.choice([None, 3]))
        elif kind == "s":
            yield facts.started("g", name, task=random.choice([None, str(number)]))
        elif kind == "x":
            counts = {"calls": random.choice([None, len(known)]), "rewards": random.choice([None, 3])}
            yield facts.completed("g", name, reward=random.choice([None, 0.1 * number]), **counts)
        elif kind == "f":
            yield facts.failure("g", name, f"{number}")
        elif kind == "g":
            yield facts.closed("g", random.sample([*TRAJECTORIES, "nobody"], 3), envelope=facts.envelope(at_us=number))
        else:
            yield facts.evicted("g", name)


def captured(random: chance.Random, name: str, number: int, known: list[CallCaptured]) -> CallCaptured:
    """A new call or a known one once more, of a new response; written against one of any before, now and then wrongly."""
    again = random.random() < 0.15 and known
    call_id = random.choice(known).call_id if again else random.choice([f"c{number}", f"c{number % 7}.{number}"])
    base = random.choice([*known[-3:], *known[:1]]) if known and random.random() < 0.8 else None
    keep = 0 if base is None else random.choice([5, 5, 5, 2, 9])
    against = "" if base is None else facts.written_against(base, keep)
    version = random.randrange(1 + number // 20)
    ids = (number, 8) if random.random() < 0.9 else ()
    return facts.call(
        "g", name, call_id,
        ids=ids,
        attempt=number,
        received_us=max(0, number - random.choice([0, 0, 0, 30])),
        prompt=facts.edge((1, 2, 3) if base is None else (4,), base=base and base.call_id, keep=keep),
        base_digest=random.choice([against, against, against, "other"]),
        has_tools=number > 40 and random.random() < 0.1,
        spans=(facts.VersionSpan(run_id=random.choice(["run", "run", "other"]), version=version, start=0, end=len(ids)),) if ids else (),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["_step", "_trajectory"])
def test_a_small_flush_looks_at_what_changed_and_at_little_else(monkeypatch, name):
    """Or a long trajectory, and a large group, would cost the square of its size: all of it for each flush."""
    looks = []
    look = getattr(project, name)
    monkeypatch.setattr(project, name, lambda *arguments: looks.append(name) or look(*arguments))
    if name == "_step":
        ids = [f"c{number:04}" for number in range(600)]
        log = [facts.call(call_id=call_id, received_us=number) for number, call_id in enumerate(ids)]
    else:
        log = [facts.call(trajectory=f"t{number}") for number in range(600)]
    state = before = None
    for number, (fact, position) in enumerate(facts.placed(log), 1):
        state = fold(state, fact, position)
        if number % 20 == 0:
            before, _ = changes(before, state)
    assert len(looks) == len(log)
