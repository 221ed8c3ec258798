"""States of calls from records alone: lines, depths, what moves no index."""

from dataclasses import dataclass

from msgspec.structs import replace

from claw_r1.datapool.batch.anchor_states import MAIN_LINE, states_of
from claw_r1.schemas.events import CallCaptured, Event, StepRecord
from tests import facts
from tests.datapool.batch.selecting import SPEC, planned, selected
from tests.trainer.pooled import group

RESPONSE = 10


@dataclass
class Agent:
    """Makes the records of a trajectory, in order; each response has 10 tokens."""

    steps: list[StepRecord]

    def call(self, call_id, length, *, base=None, keep=0, status="completed", agent=None):
        self.steps.append(
            StepRecord(
                group_id="g",
                trajectory_id="t",
                call_id=call_id,
                prompt_id=f"prompt-{call_id}",
                prompt_length=length,
                response_length=RESPONSE,
                base_call_id=base,
                base_keep=keep,
                status=status,
                agent=agent,
            )
        )

    def line(self, count, *, start=100, name="m", **fields):
        """Calls that each keep all of the one before."""
        for number in range(count):
            length = start + number * (RESPONSE + 5)
            base = f"{name}{number - 1}" if number else None
            self.call(f"{name}{number}", length, base=base, keep=length - 5 if number else 0, **fields)

    def places(self):
        states = zip(self.steps, states_of(self.steps), strict=True)
        return {step.call_id: None if state is None else (state.line, state.depth) for step, state in states}


def main_line(count, name="m"):
    return {f"{name}{number}": (MAIN_LINE, number) for number in range(count)}


def test_calls_that_go_on_with_each_other_are_one_line():
    """Depth is their number on it."""
    agent = Agent([])
    agent.line(4)
    assert agent.places() == main_line(4)


def test_an_aborted_call_shifts_no_depth():
    """It has none itself; the next call goes on with the one before it."""
    agent = Agent([])
    agent.line(2)
    agent.call("broken", 130, base="m1", keep=125, status="aborted")
    agent.call("m2", 130, base="m1", keep=125)
    assert agent.places() == main_line(3) | {"broken": None}


def test_a_sub_agents_calls_are_a_line_of_their_own():
    """Written in full, or against the main agent's instructions; the main line goes on undisturbed."""
    agent = Agent([])
    agent.line(2)
    agent.call("s0", 90, base="m1", keep=20)
    agent.call("s1", 105, base="s0", keep=100)
    agent.call("r0", 400, agent="researcher")
    agent.call("m2", 130, base="m1", keep=125)
    assert agent.places() == main_line(3) | {
        "s0": ("prompt-s0", 0),
        "s1": ("prompt-s0", 1),
        "r0": ("prompt-r0", 0),
    }


def test_of_two_calls_on_one_base_the_one_that_keeps_more_goes_on():
    """A question aside keeps the prompt, the conversation keeps prompt and response."""
    agent = Agent([])
    agent.line(1)
    agent.call("aside", 130, base="m0", keep=100)
    agent.call("m1", 130, base="m0", keep=110)
    assert agent.places() == main_line(2) | {"aside": ("prompt-aside", 0)}


def test_a_prompt_that_is_written_in_full_goes_on_with_its_line():
    """Each 64th call of a chain is, and the first one after a gateway's restart."""
    agent = Agent([])
    agent.line(3)
    agent.call("m3", 145)
    agent.call("m4", 160, base="m3", keep=155)
    assert agent.places() == main_line(5)


def test_an_agent_that_moves_a_message_keeps_its_line():
    """A long front is kept and the rest is written anew (OpenClaw)."""
    agent = Agent([])
    agent.call("m0", 100)
    agent.call("m1", 150, base="m0", keep=80)
    agent.call("m2", 200, base="m1", keep=130)
    assert agent.places() == main_line(3)


def test_a_clock_that_puts_a_base_behind_changes_no_depth():
    """The edges tell."""
    agent = Agent([])
    agent.line(3)
    agent.steps[1:] = agent.steps[:0:-1]
    assert agent.places() == main_line(3)


def test_a_long_line_is_linear():
    """Its calls are not walked again for each other."""
    agent = Agent([])
    agent.line(20_000)
    assert agent.places()["m19999"] == (MAIN_LINE, 19_999)


def test_the_plan_compares_calls_of_one_depth_through_an_aborted_one():
    """Two trajectories with rewards per step; in one the second call broke off once and was asked again."""
    history = group("g", [0.0, 1.0], ids=[[5, 6], [7, 8], [9, 9]])
    rewarded = [
        facts.reward("g", name, value, call_id=call_id, source="judge")
        for name, values in (("t0", {"c1": 2.0, "c2": 4.0}), ("t1", {"c1": 1.0, "c2": 8.0}))
        for call_id, value in values.items()
    ]
    spec_fields = {"algorithm": "step_grpo", "groups_per_batch": 1}

    def advantages(events: list[Event]) -> dict[tuple[str, str], float]:
        spec = SPEC.model_copy(update=spec_fields)
        plan = planned(selected(events, spec), spec)
        return {(t.trajectory_id, s.call_id): s.advantage for t in plan.trajectories for s in t.steps}

    whole = advantages([*history, *rewarded])
    (c1,) = [e for e in history if isinstance(e, CallCaptured) and (e.trajectory_id, e.call_id) == ("t0", "c1")]
    broken = replace(c1, call_id="c1-broken", status="aborted", envelope=facts.envelope("broken"))
    uncounted = [replace(e, calls=None) if hasattr(e, "calls") else e for e in history]
    disturbed = advantages([*uncounted, broken, *rewarded])
    assert disturbed.pop(("t0", "c1-broken")) == 0.0
    assert disturbed == whole
    assert whole["t0", "c1"] < 0 < whole["t1", "c1"]  # returns to go 6 and 10
