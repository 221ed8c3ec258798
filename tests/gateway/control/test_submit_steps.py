"""Steps that were sampled elsewhere, as Claw-R1's agent flows submit them; and fresh trajectories for agents."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from claw_r1.datapool.fold.trainable import capture_flaws
from claw_r1.datapool.fold.validation import usable
from claw_r1.gateway.control.submit_steps import SubmittedStep
from claw_r1.schemas.arrays import pack_floats, unpack_floats, unpack_ids
from claw_r1.schemas.events import CallCaptured, RewardAssigned, TrajectoryCompleted, TrajectoryStarted, VersionSpan
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES, REWARDS
from tests.gateway.house import ASK, House, ask, post

PATH = "/t/g/v1/submit_steps"
STEP: dict[str, Any] = {
    "prompt_ids": [1, 5],
    "response_ids": [7, 8, 9],
    "rollout_log_probs": [-0.5, 0, -2.25],
    "policy_version": 3,
    "run_id": "run",
}
# As Claw-R1's client writes it, with all of its defaults.
CLIENTS = {
    **{name: value for name, value in STEP.items() if name != "run_id"},
    "reward": None,
    "trajectory_uid": "t",
    "prompt_uid": "g",
    "step_index": 0,
    "is_last": True,
    "metadata": {"data_source": "ü"},
}


async def submit(house: House, *steps: object, query: str = "", **headers: str) -> tuple[int, dict]:  # type: ignore[type-arg]  # JSON of any shape
    status, reply, _ = await post(house, PATH + query, {"steps": steps}, **headers)
    return status, reply


async def test_a_step_is_a_call(house: House) -> None:
    """With everything that a capture has, known as what it is, and a reward of its own."""
    spans = [["run/3", 0, 1], ["run/4", 1, 3]]
    step = {**STEP, "spans": spans, "reward": 0.5, "call_id": "c", "model": "m", "metadata": {"x": 1}}
    assert await submit(house, step, agent="a", tags="x") == (200, {"accepted": 1, "call_ids": ["c"]})
    (event,), (reward,) = house.captured, house.events(RewardAssigned, REWARDS)
    assert (event.group_id, event.trajectory_id, event.call_id, event.protocol) == ("g", "t", "c", "submit_steps")
    assert (unpack_ids(event.prompt.suffix), unpack_ids(event.response_ids)) == ([1, 5], [7, 8, 9])
    assert unpack_floats(event.response_logprobs) == [-0.5, 0, -2.25]
    assert [(span.version, span.start, span.end) for span in event.spans] == [(3, 0, 1), (4, 1, 3)]
    assert (event.integrity.complete, capture_flaws(event), usable(event)) == (True, (), event)
    assert (event.agent, event.tags, event.channel, event.model_id) == ("a", ("x",), "train", "m")
    assert b"7" not in event.request.suffix
    assert (reward.call_id, reward.value, reward.source, reward.name) == ("c", 0.5, "agent", "outcome")
    assert house.events(TrajectoryCompleted) == []


async def test_claw_r1s_own_client_is_served(house: House) -> None:
    """Its body, its query; the run comes with a header, and the last step completes the trajectory."""
    assert (await submit(house, CLIENTS, query="?channel=val", run_id="run"))[0] == 200
    (event,), (end,) = house.captured, house.events(TrajectoryCompleted)
    assert event.spans == (VersionSpan(run_id="run", version=3, start=0, end=3),)
    assert (event.channel, event.integrity.complete, end.status, end.reward) == ("val", True, "completed", None)


@pytest.mark.parametrize(
    ("without", "missing"),
    [("rollout_log_probs", "logprobs"), ("run_id", "version_unknown"), ("policy_version", "version_unknown")],
)
async def test_what_is_not_known_is_named(house: House, without: str, missing: str) -> None:
    """Such a step is stored, and not trained."""
    assert (await submit(house, {name: value for name, value in STEP.items() if name != without}))[0] == 200
    assert house.captured[0].integrity.missing == (missing,)


async def test_pictures_are_not_trained(house: House) -> None:
    """Ids alone do not say what the model saw."""
    await submit(house, {**STEP, "multi_modal_data": {"image": "x"}})
    assert house.captured[0].integrity.missing == ("multimodal",)


async def test_a_step_said_again_is_the_same_step(house: House) -> None:
    """By its id or place, and under a key by its place in the request; corrected, it is another event of the same call."""
    for step in ({**STEP, "call_id": "c", "reward": 1}, {**STEP, "step_index": 3}):
        before = len(house.captured)
        replies = [await submit(house, step) for _ in range(2)]
        assert replies[0] == replies[1]
        assert len({event.envelope.event_id for event in house.captured[before:]}) == 1
    assert len({event.envelope.event_id for event in house.events(RewardAssigned, REWARDS)}) == 1
    again = {**STEP, "step_index": 3, "response_ids": [7, 8, 8]}
    await submit(house, again)
    assert len({event.call_id for event in house.captured}) == 2
    assert len({event.envelope.event_id for event in house.captured}) == 3
    ids = [(await submit(house, STEP, STEP, idempotency_key="k"))[1]["call_ids"] for _ in range(2)]
    assert ids[0] == ids[1]
    assert len({*ids[0], *(await submit(house, STEP, STEP))[1]["call_ids"]}) == 4


async def test_steps_keep_their_order(house: House) -> None:
    """However many come in one request."""
    ids = (await submit(house, *[{**STEP, "step_index": index} for index in range(20)]))[1]["call_ids"]
    calls = sorted(house.captured, key=lambda event: event.timings.received_us)
    assert [event.call_id for event in calls] == ids


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"response_ids": []}, "response_ids"),
    "no prompt": ({"prompt_ids": []}, "prompt_ids"),
    "a negative id": ({"prompt_ids": [1, -1]}, "prompt_ids"),
    "an id of 32 bits": ({"response_ids": [1 << 31, 2, 3]}, "response_ids"),
    "a truth": ({"response_ids": [True, 2, 3]}, "response_ids"),
    "a float": ({"response_ids": [1.0, 2, 3]}, "response_ids"),
    "text": ({"response_ids": "abc"}, "response_ids"),
    "too few": ({"rollout_log_probs": [-1, -1]}, "rollout_log_probs"),
    "too many": ({"rollout_log_probs": [-1] * 4}, "rollout_log_probs"),
    "above 0": ({"rollout_log_probs": [-1, -1, 1e-9]}, "rollout_log_probs"),
    "beyond float32": ({"rollout_log_probs": [-1, -1, -1e39]}, "rollout_log_probs"),
    "null": ({"rollout_log_probs": [-1, -1, None]}, "rollout_log_probs"),
    "a gap": ({"spans": [["run/1", 0, 1], ["run/2", 2, 3]]}, "spans"),
    "too short": ({"spans": [["run/1", 0, 2]]}, "spans"),
    "too long": ({"spans": [["run/1", 0, 4]]}, "spans"),
    "no version": ({"spans": [["default", 0, 3]]}, "spans"),
    "no rows": ({"spans": [7]}, "spans"),
    "none": ({"spans": []}, "spans"),
    "a negative version": ({"policy_version": -1}, "policy_version"),
    "a huge reward": ({"reward": 1e31}, "reward"),
    "another trajectory": ({"trajectory_uid": "u"}, "trajectory_uid"),
    "another group": ({"prompt_uid": "h"}, "prompt_uid"),
    "an id with NUL": ({"call_id": "\0"}, "call_id"),
    "a misspelt field": ({"log_probs": []}, "log_probs"),
    "a temperature below 0": ({"sampling": {"temperature": -1}}, "sampling.temperature"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_step_is_refused_with_its_field(hardened: House, name: str) -> None:
    """And nothing of its request is stored."""
    change, field = BAD[name]
    before = len(hardened.raw_records())
    status, reply = await submit(hardened, STEP, {**STEP, **change})
    assert (status, reply["error"]["param"]) == (400, f"steps.1.{field}")
    assert len(hardened.raw_records()) == before


@pytest.mark.parametrize("steps", [(), ({**STEP, "step_index": 0}, {**STEP, "step_index": 0}), ("x",)])
async def test_bad_requests_are_refused(hardened: House, steps: tuple[object, ...]) -> None:
    """None at all, or two that are one."""
    assert (await submit(hardened, *steps))[0] == 400


def test_a_response_that_is_refused_breaks_no_other_check() -> None:
    """The first fault is named, with no trace of the second."""
    with pytest.raises(ValueError, match="response_ids"):
        SubmittedStep.model_validate({**STEP, "response_ids": [-1], "spans": [["run/1", 0, 1]]})
    assert math.isfinite(unpack_floats(pack_floats([-3e38]))[0])


async def test_no_acknowledgement_is_a_503(house: House) -> None:
    """The reply comes after the log."""
    house.log.refusing = True
    assert (await submit(house, STEP))[0] == 503


async def test_a_step_that_no_record_holds_is_a_413() -> None:
    """And not an invitation to send it again."""
    with House(body_bytes_max=16 << 20) as house:
        status, reply = await submit(house, {**STEP, "prompt_ids": [1] * (LARGEST_RECORD_BYTES // 4)})
        assert (status, reply["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("path", ["/init_trajectory", "/v1/init_trajectory"])
async def test_a_fresh_trajectory_has_a_base_url(house: House, path: str) -> None:
    """It is registered, in a group of its own, and its calls are captured there; each request makes another one."""
    status, reply, _ = await post(house, path, {"agent": "a"})
    (start,) = house.events(TrajectoryStarted)
    assert (status, start.agent) == (200, "a")
    assert (reply["trajectory_id"], reply["group_id"]) == (start.trajectory_id, start.group_id)
    assert reply["base_url"] == f"{house.url}/{start.trajectory_id}/{start.group_id}"
    await ask(house, ASK, reply["base_url"].removeprefix(house.url) + "/v1/chat/completions")
    (call,) = house.events(CallCaptured)
    assert (call.trajectory_id, call.group_id) == (start.trajectory_id, start.group_id)
    other = (await post(house, path))[1]
    assert len({*other.values(), *reply.values()}) == 6


@pytest.mark.parametrize("public_url", ["https://gateway.example/claw", "https://gateway.example/claw/"])
async def test_a_base_url_behind_a_proxy_is_the_proxys(public_url: str) -> None:
    """What the proxy speaks and is called, only its operator knows; anything but a URL is refused at the start."""
    with House(public_url=public_url) as house:
        reply = (await post(house, "/init_trajectory"))[1]
        assert reply["base_url"] == f"https://gateway.example/claw/{reply['trajectory_id']}/{reply['group_id']}"
    with pytest.raises(ValidationError, match="https://"):
        House(public_url="gateway.example")


async def test_a_repeated_request_for_a_trajectory_is_the_same_one(house: House) -> None:
    """Under its key."""
    replies = [(await post(house, "/init_trajectory", idempotency_key="k"))[1] for _ in range(2)]
    assert replies[0] == replies[1]
    assert len({event.envelope.event_id for event in house.events(TrajectoryStarted)}) == 1
