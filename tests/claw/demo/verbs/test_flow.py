"""The verbs agent in each protocol that `claw demo --protocol` knows: played through a whole gateway, captured exactly."""

from collections.abc import Iterator

import pytest

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.evaluate import evaluate
from claw_r1.agentflow.settings import EvaluationPlan
from claw_r1.claw.demo.verbs.environment import right_call
from claw_r1.claw.demo.verbs.flow import MessagesVerbsFlow, ResponsesVerbsFlow, VerbsFlow
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import REWARDS
from tests.gateway.engine import Json, Received, Reply, ScriptedEngine, whole
from tests.gateway.house import House

FLOWS = {"chat": VerbsFlow, "messages": MessagesVerbsFlow, "responses": ResponsesVerbsFlow}


def right(received: Received) -> Reply:
    """A worker whose model has learned the task, in whatever protocol it is asked."""
    asked: Json = received.json
    last = (asked["messages"] if "messages" in asked else asked["input"])[-1]
    content = last.get("content", last.get("output"))
    said = right_call(content if isinstance(content, str) else content[0]["content"])
    usage = {"input_tokens": 4, "output_tokens": 3}
    if received.path.endswith("/messages"):
        assert (asked["temperature"], asked["max_tokens"]) == (0.0, 7)
        block = {"type": "text", "text": said}
        return whole(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": "end_turn",
                "usage": usage,
            }
        )
    if received.path.endswith("/responses"):
        assert (asked["temperature"], asked["max_output_tokens"], asked["skip_special_tokens"]) == (0.0, 7, False)
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}
        return whole({"id": "r", "status": "completed", "output": [{"type": "reasoning"}, item], "usage": usage})
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    return whole({"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": 3}})


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    """A worker that plays faultlessly."""
    with ScriptedEngine() as running:
        running.default = right
        yield running


@pytest.mark.parametrize("protocol", FLOWS)
async def test_a_perfect_model_earns_one_in_every_protocol(engine: ScriptedEngine, protocol: str) -> None:
    """Its calls are counted, captured whole as this protocol's, and rewarded one by one."""
    with House() as house:
        house.worker(engine.url)
        async with GatewayClient(house.url, model="tiny") as client:
            result = await evaluate(FLOWS[protocol](), client, EvaluationPlan(episodes=8))
        calls = house.captured
        assert result.reward_mean == pytest.approx(1.0)
        assert {episode.calls for episode in result.episodes} == {2, 3}
        assert {(call.protocol, call.integrity.missing, call.status) for call in calls} == {(protocol, (), "completed")}
        assert sum(episode.calls for episode in result.episodes) == len(calls)
        rewarded = {event.call_id for event in house.events(RewardAssigned, REWARDS)}
        assert rewarded < {call.call_id for call in calls}
        assert len(rewarded) == len(calls) - len(result.episodes)
