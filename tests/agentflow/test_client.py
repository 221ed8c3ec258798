import asyncio
from collections.abc import Awaitable, Callable

import pytest

from claw_r1.agentflow.bodies import ChatReply, GroupOpen, GroupSpec, RetryAfter, TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.errors import GatewayUnavailable, InvalidPlan, MalformedReply, RequestRefused
from claw_r1.agentflow.settings import AgentFlowSettings
from tests.agentflow.fake_gateway import FakeGateway

QUICK = AgentFlowSettings(retry_budget_s=2.0, retry_pause_s=0.01)
HELLO = [{"role": "user", "content": "hi"}]
ONE = TrajectoryId("t", "g")


async def test_chat_tells_the_text_its_call_and_its_version() -> None:
    """A reply carries what the gateway's headers say, and a message that can be sent back as it is."""
    async with FakeGateway(lambda messages: messages[-1]["content"] * 2) as fake, GatewayClient(fake.url) as client:
        reply = await client.chat(ONE, HELLO, temperature=0.5)
    assert (reply.text, reply.finish_reason, reply.policy_version) == ("hihi", "stop", "run/3")
    assert reply.call_id
    assert (reply.prompt_tokens, reply.completion_tokens) == (5, 2)
    assert reply.message == {"role": "assistant", "content": "hihi"}
    assert fake.bodies("chat/completions") == [{"messages": HELLO, "temperature": 0.5, "ids": ("t", "g")}]


@pytest.mark.parametrize("call", [GatewayClient.message, GatewayClient.respond])
async def test_what_is_no_reply_of_its_protocol_is_malformed(call: Callable[..., Awaitable[ChatReply]]) -> None:
    """Another object of status 200 is no silence; what is one, tests/claw/demo/verbs/test_flow.py plays."""
    async with FakeGateway() as fake, GatewayClient(fake.url) as client:
        with pytest.raises(MalformedReply):
            await call(client, ONE, HELLO, max_tokens=1)


async def test_labels_travel_as_headers() -> None:
    """Run, channel and agent are told with every call, and only those that are set."""
    async with FakeGateway() as fake, GatewayClient(fake.url, run_id="r", channel="val") as client:
        await client.chat(ONE, HELLO)
    headers = fake.requests[0][2]
    assert (headers["x-claw-run-id"], headers["x-claw-channel"]) == ("r", "val")
    assert "x-claw-agent" not in headers


async def test_a_call_says_what_it_is_for() -> None:
    """A call is main where nothing else is asked for, whoever has tools, and beside what it carries."""
    async with FakeGateway() as fake, GatewayClient(fake.url) as client:
        await client.chat(ONE, HELLO)
        await client.carrying([{"value": 1.0}]).calling_as("side").generate(ONE, [1])
        await client.complete(ONE, calls=2)
    kinds = [headers.get("x-claw-kind") for name, _, headers in fake.requests if name != "rewards"]
    assert kinds == ["main", "side", None]


async def test_ids_survive_the_path() -> None:
    """Any id reaches the gateway unchanged, slashes and spaces too."""
    odd = TrajectoryId("a/b c?", "grü/ppe#1%2F")
    async with FakeGateway() as fake, GatewayClient(fake.url) as client:
        await client.complete(odd, 1.0, calls=0)
    assert fake.requests[0][1]["ids"] == (odd.trajectory_id, odd.group_id)


@pytest.mark.parametrize("outage", ["502", "503", "cut"])
async def test_a_short_outage_is_survived_with_one_key(outage: str) -> None:
    """Attempts of one request carry one idempotency key and are counted; another request has another."""
    async with FakeGateway(outages=[outage, outage]) as fake, GatewayClient(fake.url, settings=QUICK) as client:
        assert (await client.chat(ONE, HELLO)).text == "hello"
        await client.chat(ONE, HELLO)
    keys = [headers["x-claw-idempotency-key"] for _, _, headers in fake.requests]
    assert len(keys) == 4
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert [headers["x-claw-retry-count"] for _, _, headers in fake.requests] == ["0", "1", "2", "0"]


async def test_a_gateway_that_restarts_is_waited_for() -> None:
    """A request sent while nothing listens is answered by the gateway that comes back on the port."""
    async with FakeGateway() as fake:
        port = fake.port
    async with GatewayClient(f"http://127.0.0.1:{port}", settings=QUICK) as client:
        asking = asyncio.create_task(client.chat(ONE, HELLO))
        await asyncio.sleep(0.05)
        assert not asking.done()
        async with FakeGateway(port=port):
            assert (await asking).text == "hello"


async def test_the_budget_is_bounded() -> None:
    """A gateway that stays away is reported as such, with its address, when the budget is spent."""
    async with FakeGateway() as fake:
        url = fake.url
    settings = AgentFlowSettings(retry_budget_s=0.1, retry_pause_s=0.02)
    async with GatewayClient(url, settings=settings) as client:
        with pytest.raises(GatewayUnavailable, match=url):
            await client.chat(ONE, HELLO)


async def test_an_answer_that_is_no_http_is_an_outage() -> None:
    """A proxy that comes up may say anything; whoever asks hears of it as of a gateway that is gone."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"no HTTP\r\n\r\n")
        writer.close()

    impatient = AgentFlowSettings(retry_budget_s=0.05, retry_pause_s=0.01)
    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with GatewayClient(f"http://127.0.0.1:{port}", settings=impatient) as client:
            with pytest.raises(GatewayUnavailable):
                await client.chat(ONE, HELLO)


async def test_an_address_that_is_none_is_refused_at_once() -> None:
    """Waiting makes no address of it."""
    async with GatewayClient("http://:80", settings=QUICK) as client:
        with pytest.raises(InvalidPlan, match="http://:80"):
            await client.chat(ONE, HELLO)


async def test_a_refusal_is_not_repeated() -> None:
    """A 4xx raises at once and carries the gateway's words and code."""
    async with FakeGateway(outages=["400"]) as fake, GatewayClient(fake.url, settings=QUICK) as client:
        with pytest.raises(RequestRefused, match="400") as refused:
            await client.chat(ONE, HELLO)
    assert (refused.value.status, refused.value.code, len(fake.requests)) == (400, "400", 1)


async def test_open_group_tells_opened_or_retry_after() -> None:
    """429 is an answer, with the fraction of a second that the body asks for; then the group is the one we named."""
    spec = GroupSpec(size=4, run_id="r", task={"n": 1})
    async with FakeGateway(refusals=1) as fake, GatewayClient(fake.url) as client:
        assert await client.open_group(spec) == RetryAfter(0.01, "staleness")
        assert await client.open_group(spec) == GroupOpen(spec.group_id)
    assert fake.bodies("groups") == [
        {"group_id": spec.group_id, "size": 4, "channel": "train", "run_id": "r", "task": {"n": 1}, "admission": True}
    ]
