"""Batches whose environments have shares: kept over batches, the same after a restart, and starved of one by name."""

import random

import pytest
from pydantic import ValidationError

from claw_r1.datapool.batch.selection import Selector, select
from claw_r1.datapool.batch.shares import Quotas, unknown_environments, wrong_shares
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import Event
from tests.datapool.batch.selecting import chosen
from tests.trainer.pooled import RUN, apply_to, group, pooled

SHARES = {"code": 0.5, "maths": 0.3, "web": 0.2}
SPEC = BatchSpec(groups_per_batch=4, group_size=2, staleness_max=9, environments=SHARES)


def of(environment: str, number: int, **opened: object) -> list[Event]:
    """A group of an environment, completed at that moment."""
    tags = (f"env:{environment}",) if environment else ()
    return group(f"{environment or 'none'}-{number:03}", [0.0, 1.0], at_us=number, tags=tags, **opened)


def environments(names: list[str]) -> list[str]:
    return sorted(name.split("-")[0] for name in names)


@pytest.mark.parametrize("seed", range(20))
def test_quotas_fill_every_batch_and_keep_the_shares_over_all(seed: int) -> None:
    """What one batch cannot split, later ones make up for: after any number of batches no environment is two groups off."""
    dice = random.Random(seed)
    weights = [dice.random() + 0.01 for _ in range(dice.randint(1, 6))]
    shares = {f"e{n}": weight / sum(weights) for n, weight in enumerate(weights)}
    groups = dice.randint(1, 9)
    quotas, total = Quotas(shares, groups), dict.fromkeys(shares, 0)
    for sequence in range(200):
        batch = quotas.of(sequence)
        assert sum(batch.values()) == groups
        assert min(batch.values()) >= 0
        total = {name: total[name] + batch[name] for name in shares}
        seats = groups * (sequence + 1)
        assert max(abs(total[name] - shares[name] * seats) for name in shares) < 2
    again = Quotas(shares, groups)
    for sequence in (150, 3, 199, 199):
        assert again.of(sequence) == Quotas(shares, groups).of(sequence)


def test_a_share_that_is_less_than_a_group_has_its_turn() -> None:
    """A tenth of one group a batch: one of ten batches is of it."""
    quotas = Quotas({"big": 0.9, "small": 0.1}, 1)
    batches = [quotas.of(sequence) for sequence in range(20)]
    assert sum(batch["small"] for batch in batches) == 2
    assert all(sum(batch.values()) == 1 for batch in batches)


def test_batches_keep_the_shares_whoever_is_faster() -> None:
    """Three environments, one of which plays ten times as much: ten batches hold 20, 12 and 8 groups, in the spec's order within each."""
    dice, counts = random.Random(3), {"code": 22, "maths": 13, "web": 120}
    order = [name for name, count in counts.items() for _ in range(count)]
    dice.shuffle(order)
    world = pooled([event for number, name in enumerate(order) for event in of(name, number)])
    selector, planned = Selector(world.pool, SPEC, RUN), set[str]()
    batches = []
    for sequence in range(10):
        selection = selector.select(0, planned, sequence)
        assert selection.complete
        assert selection.missing == {}
        assert chosen(selection) == chosen(select(world.pool, SPEC, 0, RUN, planned, sequence))
        assert not [why for why in selection.skipped.values() if why.startswith("environment")]
        batches.append(chosen(selection))
        planned |= set(batches[-1])
    assert environments([name for batch in batches for name in batch]) == ["code"] * 20 + ["maths"] * 12 + ["web"] * 8
    web = [name for batch in batches for name in batch if name.startswith("web")]
    assert web == sorted(web)


def test_a_batch_that_lacks_an_environment_waits_and_says_which() -> None:
    """However many groups the others have; as soon as it comes, the batch is whole."""
    world = pooled([event for number in range(8) for event in of("code" if number % 2 else "maths", number)])
    selection = select(world.pool, SPEC, 0, RUN, (), 0)
    assert not selection.complete
    assert selection.missing == {"web": 1}
    assert environments(chosen(selection)) == ["code", "code", "maths"]
    assert set(selection.left_out.values()) == {"environment_full: code", "environment_full: maths"}
    apply_to(world.pool, world.log, of("web", 99))
    selection = select(world.pool, SPEC, 0, RUN, (), 0)
    assert (selection.complete, selection.missing) == (True, {})


def test_what_is_too_much_of_one_environment_leaves_room_for_the_others() -> None:
    """With room for two batches, at most one batch of groups waits for others; the oldest beyond that are given up, and none
    while batches are whole."""
    spec = SPEC.model_copy(update={"staleness_max": 1})
    history = [event for number in range(9) for event in of("code", number)]
    world = pooled(history)
    selection = select(world.pool, spec, 0, RUN, (), 0)
    assert chosen(selection) == ["code-000", "code-001"]
    assert selection.skipped == {f"code-{number:03}": "environment_full: code" for number in (2, 3, 4)}
    assert len(selection.left_out) == spec.groups_per_batch
    apply_to(world.pool, world.log, [*of("maths", 20), *of("web", 21)])
    selection = select(world.pool, spec, 0, RUN, (), 0)
    assert selection.complete
    assert selection.skipped == {}


def test_a_group_of_no_share_is_given_up_at_once() -> None:
    """It was opened for the run and its tags are its own: its room goes back. Another run's concerns nobody."""
    other = group("other-1", [0.0, 1.0], at_us=3, tags=("env:games",), run="elsewhere")
    world = pooled([*of("games", 1), *of("", 2), *other])
    selection = select(world.pool, SPEC, 0, RUN, (), 0)
    assert selection.skipped == {
        "games-001": "environment_without_share: games",
        "none-002": "environment_without_share: none",
    }
    assert selection.foreign == {"other-1"}


def test_a_group_whose_opening_may_still_come_waits() -> None:
    """Its calls were seen before its opening, which has its tags."""
    events = [event for event in of("code", 1) if type(event).__name__ != "GroupOpened"]
    selection = select(pooled(events).pool, SPEC, 0, RUN, (), 0)
    assert selection.left_out == {"code-001": "environment_without_share: none"}
    assert selection.skipped == {}


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"a": 0.5, "b": 0.4}, "environments: the shares of a, b add up to 0.9, and must to 1"),
        ({"a": 2}, "add up to 2"),
        ({"a": 1.5, "b": -0.5}, "environments: 'b' has share -0.5; leave it out"),
        ({"a": 1, "b": 0}, "environments: 'b' has share 0; leave it out"),
        ({"a": float("nan")}, "environments"),
    ],
)
def test_wrong_shares_are_one_line(shares: dict[str, float], says: str) -> None:
    """At load, by name."""
    with pytest.raises(ValidationError) as refused:
        BatchSpec(environments=shares)
    assert says in str(refused.value)


def test_shares_that_add_up_as_floats_do_are_right() -> None:
    """Three thirds, ten tenths."""
    for count in (3, 7, 10):
        assert list(wrong_shares({f"e{n}": 1 / count for n in range(count)})) == []


def test_an_environment_that_nobody_plays_is_named() -> None:
    """Whoever looks at the next batch is told, with what there is."""
    lines = unknown_environments(SHARES, {"env:code", "hard", "env:math"})
    assert lines == [
        f"environments: no group has the tag env:{name} yet (the pool's environments: code, math)"
        for name in ("maths", "web")
    ]
    assert unknown_environments(SHARES, {f"env:{name}" for name in SHARES}) == []


def test_a_spec_without_shares_takes_groups_as_they_come() -> None:
    """And its plans say what they said before there were any."""
    plain = SPEC.model_copy(update={"environments": {}})
    world = pooled([event for number in range(4) for event in of("code", number)])
    assert select(world.pool, plain, 0, RUN, (), 0).complete
    assert "environments" not in plain.to_json()
    assert BatchSpec.model_validate_json(SPEC.to_json()) == SPEC
