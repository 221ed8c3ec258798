"""Which groups a gateway lets in, and which give their room back."""

import cProfile
import pstats

import pytest
from msgspec.structs import replace

from claw_r1.gateway.control.admission import AdmissionView, Admitted, Wait, admit
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    GroupMember,
    GroupRecord,
    PlannedTrajectory,
)
from tests.gateway.house import group, record, started


@pytest.mark.parametrize(
    ("under_way", "staleness", "per_batch", "admitted"),
    [(0, 0, 1, True), (1, 0, 1, False), (15, 1, 8, True), (16, 1, 8, False), (7, 0, 8, True), (8, 0, 8, False)],
)
def test_admission(under_way: int, staleness: int, per_batch: int, admitted: bool) -> None:
    """Groups under way stay below (staleness + 1) x groups per batch."""
    assert admit(under_way, staleness, per_batch) == (Admitted() if admitted else Wait("capacity"))


def view(run: str = "r", staleness: int = 0, per_batch: int = 2) -> AdmissionView:
    seen = AdmissionView()
    seen.apply(record(started(run, staleness, per_batch)))
    return seen


def trained(*group_ids: str, sequence: int = 0) -> BatchTrained:
    return BatchTrained(
        envelope=envelope("trainer/x"),
        run_id="r",
        sequence=sequence,
        version=sequence + 1,
        metrics={},
        group_ids=group_ids,
    )


def planned(*group_ids: str) -> BatchAssembled:
    members = [
        PlannedTrajectory(group_id=name, trajectory_id="t", reward=0.0, advantage=0.0, steps=()) for name in group_ids
    ]
    return BatchAssembled(
        envelope=envelope("trainer/x"),
        run_id="r",
        sequence=0,
        version=0,
        spec="{}",
        trajectories=tuple(members),
        seed=0,
    )


def skipped(*group_ids: str) -> BatchSkipped:
    return BatchSkipped(envelope=envelope("trainer/x"), run_id="r", group_ids=group_ids, reason="stale")


def test_run_has_to_be_known() -> None:
    """Before RunStarted nothing is admitted."""
    seen = AdmissionView()
    assert seen.reserve("r", "g") == Wait("run_unknown")
    seen.apply(record(started()))
    assert seen.reserve("r", "g") == Admitted()


def test_reservations_and_pool_count_once() -> None:
    """A group counts once, whether this process opened it, the pool shows it, or both."""
    seen = view()
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(group("g1")))
    assert seen.reserve("r", "g1") == Admitted(counted=False)
    assert seen.reserve("r", "g2") == Admitted()
    assert seen.reserve("r", "g3") == Wait("capacity")


def test_capacity_comes_back() -> None:
    """Skipped groups, groups closed with nothing to train, released reservations and new versions make room."""
    seen = view()
    seen.apply(record(group("g1")))
    seen.apply(record(group("g2")))
    assert seen.reserve("r", "g3") == Wait("capacity")
    seen.apply(record(skipped("g1")))
    seen.apply(record(skipped("g1", "elsewhere")))
    assert seen.reserve("r", "g3") == Admitted()
    assert seen.reserve("r", "g4") == Wait("capacity")
    seen.release("r", "g3")
    assert seen.reserve("r", "g4") == Admitted()
    seen.apply(record(group("g2", closed=True)))
    assert seen.reserve("r", "g5") == Admitted()
    seen.apply(record(group("g2", closed=True, ready=True)))
    assert seen.reserve("r", "g6") == Wait("capacity")
    seen.apply(record(trained("g2", "g4")))
    assert seen.reserve("r", "g6") == Admitted()
    assert seen.reserve("r", "g7") == Wait("capacity")


def evicted(group_id: str) -> GroupRecord:
    stub = group(group_id)
    return replace(stub, members=(), channel="", reasons=("evicted",), evicted_event_id="e", evicted_reason="retention")


def test_a_trained_group_that_is_evicted_makes_no_room_a_second_time() -> None:
    """Its batch gave the room back already: or a long run whose pool ends would open more and more groups."""
    seen = view()
    for batch in range(10):
        names = [f"g{batch}-{number}" for number in range(2)]
        assert [seen.reserve("r", name) for name in names] == [Admitted()] * 2
        assert seen.reserve("r", "one more") == Wait("capacity"), batch
        seen.apply(record(trained(*names, sequence=batch)))
        for name in names:
            seen.apply(record(group(name, ready=True)))
            seen.apply(record(evicted(name)))
    assert seen.run_of("g0-0") is None, "an evicted group is remembered nowhere"


def test_a_group_that_is_evicted_before_it_was_trained_gives_its_room_back() -> None:
    """Nobody will train it; a late word for it changes nothing."""
    seen = view(per_batch=1)
    seen.apply(record(group("g")))
    assert seen.reserve("r", "h") == Wait("capacity")
    seen.apply(record(evicted("g")))
    seen.apply(record(evicted("g")))
    assert seen.reserve("r", "h") == Admitted()


def test_the_groups_of_a_batch_stand_in_its_plan_where_the_event_does_not_name_them() -> None:
    """Runs that an older trainer trained, and a batch that a resumed one publishes from its checkpoint."""
    seen = view()
    assert [seen.reserve("r", name) for name in ("g1", "g2")] == [Admitted()] * 2
    seen.apply(record(planned("g1", "g2")))
    assert seen.reserve("r", "g3") == Wait("capacity")
    seen.apply(record(trained(sequence=1)))
    assert seen.reserve("r", "g3") == Wait("capacity"), "that is another plan"
    seen.apply(record(planned("g1", "g2")))
    seen.apply(record(trained()))
    assert seen.reserve("r", "g3") == Admitted()


def test_a_plan_that_cannot_be_read_ends_nobody() -> None:
    """The follower's thread would end, and with it every admission."""
    seen = view(per_batch=1)
    whole = record(planned("g1"))
    seen.apply(replace(whole, value=whole.value and whole.value[:-9]))
    seen.apply(record(trained()))
    assert seen.reserve("r", "g1") == Admitted()


def test_a_plan_that_is_read_before_the_pool_is_forgotten_with_the_stub() -> None:
    """A gateway that starts reads the plans of years first, and then of their groups only stubs; of those that are not folded in
    a new generation yet, the rows come later and take no room."""
    seen = view()
    seen.apply(record(trained("old", "folded later")))
    seen.apply(record(evicted("old")))
    assert seen._runs["r"].over == {"folded later"}
    seen.apply(record(group("folded later", ready=True)))
    assert [seen.reserve("r", name) for name in ("g1", "g2", "g3")] == [Admitted(), Admitted(), Wait("capacity")]


def ended(group_id: str, *members: GroupMember, size: int | None = 2) -> GroupRecord:
    return replace(group(group_id), members=members, expected_size=size)


def member(
    status: str = "failed", earned: float | None = None, version: int | None = None, *, ready: bool = False
) -> GroupMember:
    return GroupMember(
        trajectory_id="t", status=status, ready=ready, digest="", return_total=earned, min_version=version
    )


FAILED = member()


def test_a_burst_of_failed_episodes_takes_no_room() -> None:
    """Groups of which every member broke off without an outcome make room for others long before their deadline."""
    seen = view()
    for number in range(16):
        assert seen.reserve("r", f"g{number}") == Admitted(), number
        seen.apply(record(ended(f"g{number}", FAILED, member("abandoned", version=0))))
    assert seen.reserve("r", "h0") == Admitted()
    seen.apply(record(ended("g0", FAILED, member(earned=1.0, version=0, ready=True))))  # somebody judged one of them
    assert seen.reserve("r", "h1") == Wait("capacity")


@pytest.mark.parametrize(
    ("row", "takes_room"),
    [
        (ended("g", FAILED, FAILED), False),
        (ended("g", FAILED, member("evicted")), False),
        (ended("g", FAILED, member(earned=0.0)), False),  # judged, but nothing was sampled
        (ended("g", FAILED, member(earned=0.0, version=0)), False),  # its calls were rewarded, its outcome was not
        (ended("g", FAILED, member("abandoned", earned=0.0)), False),  # nothing was sampled
        (ended("g", FAILED, member("abandoned", earned=0.0, version=0)), True),  # specs may train it
        (ended("g", FAILED, member("completed", version=0)), True),  # its reward may come
        (ended("g", FAILED, member("completed")), True),  # of a provider, whose versions nobody knows
        (ended("g", FAILED, member("open")), True),
        (ended("g", FAILED, member(earned=0.0, version=0, ready=True)), True),
        (ended("g", FAILED, size=2), True),  # another may come
        (ended("g", FAILED, FAILED, size=None), True),
    ],
)
def test_a_group_takes_room_as_long_as_anything_may_be_trained(row: GroupRecord, takes_room: bool) -> None:
    """What waits for a member, a reward or the trainer does; what only a judgement of failures could save does not."""
    seen = view(per_batch=1)
    assert seen.reserve("r", "g") == Admitted()
    seen.apply(record(row))
    assert seen.reserve("r", "h") == (Wait("capacity") if takes_room else Admitted())


def test_weights_that_are_published_again_make_no_room() -> None:
    """A replay that gives other bytes takes another number for the weights of the same batch; nothing more was trained."""
    seen = view()
    assert [seen.reserve("r", f"g{n}") for n in range(3)] == [Admitted(), Admitted(), Wait("capacity")]
    for version in (1, 2):
        seen.apply(record(replace(trained("g0"), version=version)))
    assert [seen.reserve("r", f"h{n}") for n in range(2)] == [Admitted(), Wait("capacity")]


def test_a_batch_that_was_given_up_makes_room_once() -> None:
    """Its groups are returned; that its number lies below those in the weights is no second return."""
    seen = view()
    opened = [seen.reserve("r", f"g{n}") for n in range(2)]
    seen.apply(record(trained(sequence=1)))
    seen.apply(record(replace(skipped("g0", "g1"), sequence=0)))
    opened += [seen.reserve("r", f"h{n}") for n in range(3)]
    assert opened == [*[Admitted()] * 4, Wait("capacity")]


def test_a_group_whose_channel_becomes_another_gives_its_room_back() -> None:
    """One call that names another channel makes the group that channel's, for good: nobody trains it for this run."""
    seen = view()
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(group("g1")))
    seen.apply(record(group("g2")))
    seen.apply(record(group("g1", channel="val")))
    assert seen.reserve("r", "g3") == Admitted()
    seen.apply(record(skipped("g3")))
    seen.apply(record(group("g3", channel="probe")))
    assert seen.reserve("r", "g4") == Admitted()
    assert seen.reserve("r", "g5") == Wait("capacity")


def test_a_group_is_of_one_run_and_the_other_ones_room_comes_back() -> None:
    """Two gateways let two runs open one group; the pool says whose it is. A stray call of another run says nothing."""
    seen = view()
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(group("g1", run="calls", declared=False)))
    assert seen.run_of("g1") == "r"
    assert (seen.reserve("r", "g2"), seen.reserve("r", "g3")) == (Admitted(), Wait("capacity"))
    seen.apply(record(group("g1", run="other")))
    assert (seen.run_of("g1"), seen.reserve("r", "g3")) == ("other", Admitted())


def test_groups_without_room_are_of_their_run_too() -> None:
    """Those of other channels, and those that were opened without admission."""
    seen = view()
    seen.apply(record(group("v", run="other", channel="val")))
    assert (seen.note("r", "w"), seen.note("r", "w")) == (True, False)
    assert (seen.run_of("v"), seen.run_of("w"), seen.run_of("x")) == ("other", "r", None)
    seen.release("r", "w")
    assert seen.run_of("w") is None


def test_a_group_counts_once_somebody_declares_it() -> None:
    """A call may be folded before its group's declaration; a reservation counts before either."""
    seen = view()
    seen.apply(record(group("g1", declared=False)))
    seen.apply(record(group("g1")))
    assert seen.reserve("r", "g2") == Admitted()
    seen.apply(record(group("g2", declared=False)))
    assert seen.reserve("r", "g3") == Wait("capacity")


def test_skip_before_the_group_is_seen() -> None:
    """Topics are read in any order: a skip that comes first returns the group's capacity once it appears."""
    seen = view()
    seen.apply(record(skipped("g1")))
    seen.apply(record(group("g1")))
    seen.apply(record(group("g2")))
    assert seen.reserve("r", "g3") == Admitted()
    assert seen.reserve("r", "g4") == Wait("capacity")


def test_other_groups_take_no_room() -> None:
    """Groups of other runs, of no run, of other channels and undeclared ones do not count, nor do batches of them make room."""
    seen = view()
    for number, kind in enumerate(({"run": "other"}, {"run": None}, {"channel": "val"}, {"declared": False})):
        seen.apply(record(group(f"x{number}", **kind)))  # type: ignore[arg-type]  # fields by name, of any type
    seen.apply(record(trained("x1", "x3")))
    seen.apply(record(group("g1")))
    assert [seen.reserve("r", f"h{number}") for number in range(2)] == [Admitted(), Wait("capacity")]


@pytest.mark.parametrize("evicted", [False, True])
def test_a_row_costs_the_same_beside_however_many_runs(evicted: bool) -> None:
    """A start takes every group of the pool in: the work of a row is that of its own run."""
    assert calls_of_a_row(beside=50, evicted=evicted) == calls_of_a_row(beside=1, evicted=evicted)


def calls_of_a_row(beside: int, evicted: bool) -> int:
    """The function calls that it takes to take one row in and to find its run, once other runs are known."""
    seen = view()
    for number in range(beside):
        seen.apply(record(started(f"other-{number}")))
    row = group("g1")
    seen.apply(record(row))
    profile = cProfile.Profile()
    profile.runcall(seen.apply, record(replace(row, reasons=("evicted",)) if evicted else row))
    profile.runcall(seen.run_of, "g1")
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # its stubs forget it


def test_a_group_that_two_runs_hold_is_forgotten_by_both() -> None:
    """An eviction and a release take the id out of every set it stands in, and out of no other run's."""
    seen = view(per_batch=1)
    seen.apply(record(started("other", per_batch=1)))
    assert [seen.reserve(run, "g1") for run in ("r", "other")] == [Admitted(), Admitted()]
    seen.release("r", "g1")
    assert (seen.run_of("g1"), seen.reserve("other", "g2")) == ("other", Wait("capacity"))
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(replace(group("g1", run=None), reasons=("evicted",))))
    assert seen.run_of("g1") is None
    assert [seen.reserve(run, "g2") for run in ("r", "other")] == [Admitted(), Admitted()]
