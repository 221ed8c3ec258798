"""What a plan keeps of how its episodes went, on pools that the real folds made."""

from msgspec.structs import replace

from claw_r1.datapool.batch.figures import SLOTS_MAX, environment_of
from claw_r1.datapool.batch.members import plan_bytes
from claw_r1.datapool.batch.selection import Selection
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.listing.columns import COLUMNS
from claw_r1.gateway.capture.events import repeated
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured, Event, Integrity, Timings, Usage
from tests import facts
from tests.datapool.batch.selecting import SPEC, planned, selected


def episode(name: str, *, lengths: list[int], cut: int = 0, tags: tuple[str, ...] = (), **ended: object) -> list[Event]:
    """Calls one second apart, each two seconds long; the last `cut` of them are cut off."""
    calls = [
        facts.call(
            "g",
            name,
            f"c{n}",
            ids=[5] * length,
            finish_reason="length" if n >= len(lengths) - cut else "stop",
            timings=Timings(received_us=n * 1_000_000, dispatched_us=0, done_us=n * 1_000_000 + 2_000_000),
        )
        for n, length in enumerate(lengths)
    ]
    end = facts.completed("g", name, calls=len(lengths), **{"reward": 1.0, **ended})
    return [facts.started("g", name, tags=tags), *calls, end]


def test_a_plan_says_how_each_episode_went() -> None:
    """Lengths in order, what was cut off, the time from the first call to the last reply, status, environment, rewards by slot."""
    history = [
        facts.opened("g", expected_size=2, tags=("env:math", "hard")),
        *episode("t0", lengths=[3, 5, 7], cut=1),
        *episode("t1", lengths=[2], status="failed", reward=0.0),
        facts.reward("g", "t0", 0.25, source="judge", name="style", call_id="c0"),
        facts.reward("g", "t0", 0.5, source="judge", name="style", call_id="c1"),
        facts.reward("g", "t0", None, source="judge", name="none"),
    ]
    plan = planned(selected(history, SPEC.model_copy(update={"groups_per_batch": 1}), version=3))
    first, second = (each.figures for each in plan.trajectories)
    assert first is not None
    assert second is not None
    assert (first.response_lengths, first.truncated, first.seconds) == ((3, 5, 7), 1, 4.0)
    assert (first.environment, first.status) == ("math", "completed")
    rewards = dict(first.rewards)
    assert rewards.pop("judge/style") == 0.75
    assert list(rewards.values()) == [1.0]
    assert (second.response_lengths, second.truncated, second.seconds) == ((2,), 0, 2.0)
    assert (second.environment, second.status) == ("math", "failed")


def test_a_reply_without_ids_is_as_long_as_its_server_counted() -> None:
    """A curve of text that is imitated is no line at 0: one count serves the limit `response_tokens_max` and the curves."""
    start, call, end = episode("t0", lengths=[3])
    assert isinstance(call, CallCaptured)
    text = replace(
        call,
        response_ids=b"",
        response_logprobs=b"",
        spans=(),
        usage=Usage(prompt_tokens=9, completion_tokens=412),
        integrity=Integrity(complete=False, missing=("token_ids", "logprobs", "spans")),
    )
    spec = BatchSpec.model_validate({"preset": "sft_logged", "groups_per_batch": 1})
    plan = planned(selected([facts.opened("g", expected_size=1), start, text, end], spec), spec)
    assert [each.figures.response_lengths for each in plan.trajectories if each.figures] == [(412,)]


def test_a_reward_that_was_given_by_call_and_by_step_counts_once() -> None:
    """Both name one subject, so the later word wins in the curve of its slot as in the return."""
    history = [
        *episode("t0", lengths=[3, 5], reward=None),
        *episode("t1", lengths=[2]),
        facts.reward("g", "t0", 0.5, source="judge", name="style", call_id="c0"),
        facts.reward("g", "t0", 0.5, source="judge", name="style", step_index=0),
        facts.reward("g", "t0", 0.25, source="judge", name="style", step_index=1),
    ]
    plan = planned(selected(history, SPEC.model_copy(update={"groups_per_batch": 1}), version=3))
    first = plan.trajectories[0]
    assert first.figures is not None
    assert dict(first.figures.rewards) == {"judge/style": 0.75}
    assert first.reward == 0.75


def test_a_call_whose_reply_was_repeated_begins_when_it_first_came_in() -> None:
    """The repetition is the capture that counts, and takes no time of its own."""
    (start, call, end) = episode("t0", lengths=[3])
    assert isinstance(call, CallCaptured)
    again = repeated(call, 1, 9_000_000, None)
    history = [facts.opened("g", expected_size=2), start, call, again, end, *episode("t1", lengths=[2])]
    selection = selected(history, SPEC.model_copy(update={"groups_per_batch": 1}), version=3)
    (figures, _) = (each.figures for each in planned(selection).trajectories)
    assert figures is not None
    assert figures.seconds == 9.0
    (step,) = selection.chosen[0].members[0].steps
    assert COLUMNS["steps"]["duration"].read(step) == 9.0


def test_the_environment_is_the_first_tag_by_name() -> None:
    """Sets have no order, and a plan must not depend on one."""
    assert environment_of(frozenset({"x", "env:b", "env:a", "environment"})) == "a"
    assert environment_of(frozenset({"x"})) == ""


def test_the_figures_take_no_more_of_a_plan_than_was_counted() -> None:
    """Many slots, long names, long replies: the count is above what is written, and the slots are bounded."""
    tags, name = ("env:" + "\U0001d535" * 60,), "\U0001d535" * 40
    history = [facts.opened("g", expected_size=2, tags=tags)]
    for trajectory in ("t0", "t1"):
        history += episode(trajectory, lengths=[900] * 3, cut=3)
        history += [facts.reward("g", trajectory, 0.1, source=f"judge{n:02}", name=name) for n in range(SLOTS_MAX + 5)]
    spec = SPEC.model_copy(update={"groups_per_batch": 1})
    selection = selected(history, spec, version=3)
    empty = len(encode(planned(Selection((), {}, {}, False), spec)))
    plan = planned(selection, spec)
    assert [len(each.figures.rewards) for each in plan.trajectories if each.figures] == [SLOTS_MAX] * 2
    (one,) = selection.chosen
    taken = len(encode(plan)) - empty
    assert taken <= plan_bytes(one, spec) < 2 * taken + 1000
