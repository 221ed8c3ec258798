"""People who use a verbs agent for as long as it runs. It knows a base URL and a key, and nothing of what learns from it.

`OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python -m claw_r1.claw.demo.verbs.people`: each conversation sends its id as
`x-session-id`, as chat clients do. Nobody opens a group, registers, or says that a conversation is over. A while afterwards its person
says what it was worth, under the ids that the replies' headers name.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import aiohttp

from claw_r1.claw.demo.verbs.environment import Task, judge
from claw_r1.claw.demo.verbs.flow import SAMPLING, shown

UNWELL_S = 1.0
"""How long a person leaves an agent alone that got no answer."""


@dataclass(slots=True)
class PeopleCounts:
    """The counts of people's conversations."""

    calls_replied: int = 0
    calls_unanswered: int = 0
    sessions: int = 0
    feedback: int = 0


class People:
    """`think_s`: how long a person takes to judge a conversation, at most."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str, model: str, think_s: float) -> None:
        self.counts, self.stopping = PeopleCounts(), asyncio.Event()
        self._http, self._base_url, self._model, self._think_s = http, base_url, model, think_s

    async def live(self, dice: random.Random) -> None:
        """One conversation after the other, until it is time to stop."""
        while not self.stopping.is_set():
            try:
                await self._converse(Task.from_seed(dice.getrandbits(32)), dice.uniform(0, self._think_s))
            except aiohttp.ClientError:
                await asyncio.sleep(UNWELL_S)

    async def _converse(self, task: Task, think_s: float) -> None:
        messages, session, earned = [], {"x-session-id": str(uuid.uuid4())}, 0.0
        for index, observation in enumerate(task.observations):
            messages.append(shown(index, observation))
            body = {"model": self._model, "messages": messages, **SAMPLING}
            self.counts.calls_unanswered += 1
            async with self._http.post(f"{self._base_url}/chat/completions", json=body, headers=session) as reply:
                where = "/".join(
                    quote(unquote(reply.headers[f"x-claw-{part}"]), "") for part in ("trajectory", "group")
                )
                messages.append((await reply.json())["choices"][0]["message"])
            self.counts.calls_unanswered -= 1
            self.counts.calls_replied += 1
            turn = judge(task, index, messages[-1]["content"] or "")
            earned += turn.reward
            if turn.observation is None:
                break
        self.counts.sessions += 1
        await asyncio.sleep(think_s)
        feedback = {"value": earned, "source": "user"}
        async with self._http.post(f"{self._base_url.removesuffix('/v1')}/{where}/v1/rewards", json=feedback):
            self.counts.feedback += 1


async def main() -> None:
    """Until SIGTERM or Ctrl-C; then every conversation that was begun is ended, and the counts are written."""
    parser = argparse.ArgumentParser(prog="people", description=__doc__.partition("\n")[0])
    parser.add_argument("--people", type=int, default=64, help="conversations at once (64)")
    parser.add_argument("--think-s", type=float, default=2.0, help="how long a judgement takes at most (2)")
    parser.add_argument("--seed", type=int, default=0, help="of what they ask (0)")
    parser.add_argument("--stats", type=Path, help="file for the counts, as JSON")
    options = parser.parse_args()
    key = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    async with aiohttp.ClientSession(headers=key, raise_for_status=True) as http:
        people = People(http, os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_MODEL"], options.think_s)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, people.stopping.set)
        dice = random.Random(options.seed)
        await asyncio.gather(*(people.live(random.Random(dice.getrandbits(32))) for _ in range(options.people)))
    if options.stats:
        options.stats.write_text(json.dumps(asdict(people.counts)))


if __name__ == "__main__":
    asyncio.run(main())
