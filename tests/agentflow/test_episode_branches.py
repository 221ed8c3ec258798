"""What an episode can do beside one conversation: tokens, tools, sub-agents; and what ends one that goes on for ever."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from claw_r1.agentflow.bodies import EpisodeLimits, JsonObject, TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode, EpisodeResult
from claw_r1.agentflow.errors import AgentFlowError, EpisodeLimitExceeded, GatewayUnavailable, MalformedReply, ToolError
from claw_r1.agentflow.flow import AgentFlow, play
from claw_r1.agentflow.settings import AgentFlowSettings
from tests.agentflow.fake_gateway import FakeGateway
from tests.agentflow.test_flow import QUICK, Scripted

HELLO = [{"role": "user", "content": "hi"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
Script = Callable[[Episode], Coroutine[None, None, None]]


async def played(
    fake: FakeGateway, flow: AgentFlow | Script, limits: EpisodeLimits | None = None, **sampling: object
) -> EpisodeResult:
    flow = flow if isinstance(flow, AgentFlow) else Scripted(flow)
    async with GatewayClient(fake.url, settings=QUICK) as client:
        episode = Episode(client, TrajectoryId("t", "g"), task={}, seed=0, limits=limits, sampling=sampling)
        return await play(flow, episode, QUICK)


async def test_tokens_in_and_tokens_out() -> None:
    """Ids go and come as they are, with log-probabilities, and count as chat does; the runner's sampling wins."""

    async def script(episode: Episode) -> None:
        first = await episode.generate([1, 2], temperature=1.0, max_tokens=5)
        assert (first.ids, first.logprobs, first.text, first.finish_reason) == ([104, 105], [-0.5, -0.5], "hi", "stop")
        assert (first.call_id, first.policy_version) == (episode.call_ids[0], "run/3")
        await episode.generate([1, 2, *first.ids, 9])
        assert episode.tokens == 4

    async with FakeGateway(completes=lambda prompt_ids: [104, 105]) as fake:
        result = await played(fake, script, temperature=0.0)
    assert (result.status, result.calls) == ("completed", 2)
    assert result.transcript == ({"role": "assistant", "content": "hi"},) * 2
    assert fake.bodies("completions")[0] == {
        "return_token_ids": True,
        "logprobs": 0,
        "temperature": 0.0,
        "max_tokens": 5,
        "prompt": [1, 2],
        "ids": ("t", "g"),
    }
    assert fake.bodies("completions")[1]["prompt"] == [1, 2, 104, 105, 9]


@pytest.mark.parametrize("gap", [{"token_ids": None}, {"logprobs": None}, {"logprobs": {"token_logprobs": []}}])
async def test_a_reply_without_its_tokens_is_malformed(gap: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that gives no ids, or not as many log-probabilities, cannot be played by tokens, and says so."""
    async with FakeGateway() as fake, GatewayClient(fake.url) as client:
        tokens = fake._tokens
        monkeypatch.setattr(fake, "_tokens", lambda body: {**tokens(body), **gap})
        with pytest.raises(MalformedReply, match="log-probabilities"):
            await client.generate(TrajectoryId("t", "g"), [1])


def calling(*calls: tuple[str, str]) -> dict[str, Any]:
    """A message that calls tools."""
    return {
        "content": None,
        "tool_calls": [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ],
    }


async def add(name: str, arguments: JsonObject) -> str:
    if arguments["a"] < 0:
        raise ToolError("only positive numbers")
    return str(arguments["a"] + arguments["b"])


async def test_a_tool_loop_ends_with_an_answer() -> None:
    """Results stand under the ids of their calls; what the model does wrong it is told, and can mend."""
    turns = iter(
        [
            calling(("add", '{"a": 1, "b": 2}'), ("sing", "{}")),
            calling(("add", '{"a": -1, "b": 2}'), ("add", "[1]"), ("add", "{")),
            "three",
        ]
    )

    async def script(episode: Episode) -> None:
        reply = await episode.converse(HELLO, [ADD], add, temperature=0.5)
        assert reply.text == "three"

    async with FakeGateway(lambda messages: next(turns)) as fake:
        result = await played(fake, script)
    results = [message for message in result.transcript if message["role"] == "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in results] == [
        ("c0", "3"),
        ("c1", "error: there is no tool 'sing'"),
        ("c0", "error: only positive numbers"),
        ("c1", "error: the arguments must be a JSON object"),
        ("c2", "error: the arguments must be a JSON object"),
    ]
    assert [(body["tools"], body["temperature"]) for body in fake.bodies("chat/completions")] == [([ADD], 0.5)] * 3
    assert (result.status, result.calls) == ("completed", 3)


async def test_a_tool_loop_has_an_end_and_a_broken_tool_fails_the_episode() -> None:
    """After the last turn the caller gets the reply with its calls; an error that is the tool's own is nobody's answer."""
    async with FakeGateway(lambda messages: calling(("add", "{}"))) as fake:

        async def again(name: str, arguments: JsonObject) -> str:
            return "again"

        async def endless(episode: Episode) -> None:
            assert (await episode.converse(HELLO, [ADD], again, turns_max=3)).message["tool_calls"]

        async def broken(episode: Episode) -> None:
            await episode.converse(HELLO, [ADD], add)  # a KeyError: the model named no `a`

        assert ((result := await played(fake, endless)).status, result.calls) == ("completed", 3)
        assert (await played(fake, broken)).status == "failed"


async def test_branches_are_conversations_of_one_trajectory() -> None:
    """Sub-agents at once: each has its own transcript; calls, rewards and limits are the episode's."""

    async def script(episode: Episode) -> None:
        helpers = [episode.branch() for _ in range(3)]
        said = [[{"role": "user", "content": str(number)}] for number in range(3)]
        await asyncio.gather(*(helper.chat(messages) for helper, messages in zip(helpers, said, strict=True)))
        await helpers[0].branch().generate([1])
        assert [helper.transcript[0]["content"] for helper in helpers] == ["0", "1", "2"]
        assert episode.transcript == []
        with pytest.raises(EpisodeLimitExceeded):
            await helpers[2].chat(HELLO)

    async with FakeGateway() as fake:
        result = await played(fake, script, EpisodeLimits(calls=4))
    assert fake.bodies("complete_trajectory")[0]["calls"] == result.calls == 4
    assert {body["ids"] for body in fake.bodies("chat/completions")} == {("t", "g")}


async def test_a_branch_says_what_its_calls_are_for() -> None:
    """An episode plays its task, a branch what it was made for, and so does one of its own."""

    async def script(episode: Episode) -> None:
        sub_agent = episode.branch("subagent")
        for branch in (episode, episode.branch(), sub_agent, sub_agent.branch(), sub_agent.branch("side")):
            await branch.chat(HELLO)
            await branch.generate([1])

    async with FakeGateway() as fake:
        await played(fake, script)
    kinds = [headers["x-claw-kind"] for name, _, headers in fake.requests if name.endswith("completions")]
    assert kinds[::2] == kinds[1::2] == ["main", "main", "subagent", "subagent", "side"]


async def talk(episode: Episode) -> None:
    while True:
        await episode.chat(HELLO)


async def talk_whatever_happens(episode: Episode) -> None:
    for _ in range(20):
        try:
            await episode.chat(HELLO)
        except AgentFlowError:
            episode.outcome = 1.0


async def wait(episode: Episode) -> None:
    await episode.chat(HELLO)
    await asyncio.Event().wait()


async def wait_whatever_happens(episode: Episode) -> None:
    try:
        await wait(episode)
    except asyncio.CancelledError:
        episode.outcome = 1.0


@pytest.mark.parametrize(
    ("script", "limits", "calls"),
    [
        (talk, EpisodeLimits(calls=3), {3}),
        (talk, EpisodeLimits(tokens=5), {3}),
        (talk_whatever_happens, EpisodeLimits(calls=2), {2}),
        (talk_whatever_happens, EpisodeLimits(tokens=1), {1}),
        (wait, EpisodeLimits(seconds=0.1), {0, 1}),
        (wait_whatever_happens, EpisodeLimits(seconds=0.1), {0, 1}),
    ],
)
async def test_an_episode_beyond_a_limit_is_failed(script: Script, limits: EpisodeLimits, calls: set[int]) -> None:
    """Without an outcome, whatever its flow does about it; what was replied is counted, and nothing is raised."""
    async with FakeGateway() as fake:
        result = await played(fake, script, limits)
    assert result.calls in calls
    assert (result.status, result.reward) == ("failed", None)
    assert fake.bodies("complete_trajectory") == [{"status": "failed", "calls": result.calls, "ids": ("t", "g")}]


async def test_an_episode_within_its_limits_is_completed() -> None:
    """Exactly as many calls and tokens as it may."""

    async def script(episode: Episode) -> None:
        for _ in range(3):
            await episode.chat(HELLO)

    async with FakeGateway() as fake:
        assert (await played(fake, script, EpisodeLimits(60.0, 6, 3))).status == "completed"


async def test_limits_are_settings() -> None:
    """Where an episode has none of its own, those of its client hold."""
    settings = AgentFlowSettings(episode_seconds_max=1.5, episode_tokens_max=2, episode_calls_max=3)
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=settings) as client:
        episode = Episode(client, TrajectoryId("t", "g"), task={}, seed=0)
    assert episode.limits == EpisodeLimits(1.5, 2, 3)


async def test_a_timeout_of_the_flow_is_its_own() -> None:
    """A TimeoutError that the flow raises is no limit of the episode."""

    async def script(episode: Episode) -> None:
        raise TimeoutError

    async with FakeGateway() as fake, GatewayClient(fake.url) as client:
        episode = Episode(client, TrajectoryId("t", "g"), task={}, seed=0, limits=EpisodeLimits(seconds=60.0))
        assert (await play(Scripted(script), episode, QUICK)).status == "failed"
    assert episode.exceeded is None


class Shaky(AgentFlow):
    """Fails some times before its first call, and once after it where that is asked for."""

    retries = 2

    def __init__(self, failures: int, *, late: bool = False) -> None:
        self.failures, self.late, self.begun = failures, late, 0

    async def run(self, episode: Episode) -> None:
        self.begun += 1
        if self.begun <= self.failures and not self.late:
            raise GatewayUnavailable("env", "did not start", 1)
        await episode.chat(HELLO)
        if self.begun <= self.failures:
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("flow", "begun", "status"),
    [(Shaky(2), 3, "completed"), (Shaky(3), 3, "failed"), (Shaky(1, late=True), 1, "failed")],
)
async def test_an_episode_that_did_not_begin_is_begun_again(flow: Shaky, begun: int, status: str) -> None:
    """As often as its flow says, and only while nothing of it is in the log."""
    async with FakeGateway() as fake:
        assert (await played(fake, flow)).status == status
    assert (flow.begun, len(fake.bodies("complete_trajectory"))) == (begun, 1)
