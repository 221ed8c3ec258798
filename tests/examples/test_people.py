"""People who use the verbs agent: what goes over the wire is what any chat client sends."""

import asyncio
import random
from collections import defaultdict

import aiohttp
from aiohttp import web

from claw_r1.claw.demo.verbs.environment import right_call
from claw_r1.claw.demo.verbs.people import People

ENOUGH = 6


class Provider:
    """A chat endpoint that answers right, names sessions as it likes, and fails now and then."""

    def __init__(self) -> None:
        self.people: People
        self.asked: dict[str, list[int]] = defaultdict(list)
        self.judged: dict[str, float] = {}
        self.refusals = ["503"]

    async def chat(self, request: web.Request) -> web.Response:
        session, body = request.headers["x-session-id"], await request.json()
        assert request.headers["authorization"] == "Bearer key"
        assert not [name for name in request.headers if name.lower().startswith("x-claw")]
        self.asked[session].append(len(body["messages"]))
        if len(self.asked) == 2 and self.refusals:
            return web.Response(status=int(self.refusals.pop()))
        message = {"role": "assistant", "content": right_call(body["messages"][-1]["content"])}
        ids = {"x-claw-trajectory": f"scope/{session}%25", "x-claw-group": f"scope/{session}%25"}
        return web.json_response({"choices": [{"message": message}]}, headers=ids)

    async def reward(self, request: web.Request) -> web.Response:
        trajectory, group = request.match_info["trajectory"], request.match_info["group"]
        assert trajectory == group
        body = await request.json()
        assert body["source"] == "user"
        self.judged[trajectory.removeprefix("scope/").removesuffix("%")] = body["value"]
        if len(self.judged) == ENOUGH:
            self.people.stopping.set()
        return web.json_response({})


async def test_conversations_are_ended_and_judged_under_the_ids_that_the_replies_name():
    """Ids with slashes and percent signs are found again; a conversation without an answer is not judged; stopping ends all."""
    provider, app = Provider(), web.Application()
    app.router.add_post("/v1/chat/completions", provider.chat)
    app.router.add_post("/{trajectory}/{group}/v1/rewards", provider.reward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    async with aiohttp.ClientSession(headers={"authorization": "Bearer key"}, raise_for_status=True) as http:
        people = provider.people = People(http, url, "tiny", think_s=0.0)
        await asyncio.gather(*(people.live(random.Random(seed)) for seed in range(2)))
    await runner.cleanup()
    assert len(provider.asked) == len(provider.judged) + 1 == people.counts.sessions + 1, "one was refused"
    assert set(provider.judged.values()) == {1.0}
    answered = [turns for session, turns in provider.asked.items() if session in provider.judged]
    assert all(turns in ([1, 3], [1, 3, 5]) for turns in answered)
    assert people.counts.calls_replied == sum(map(len, answered))
