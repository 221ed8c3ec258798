"""What an episode says that it earned is what the pool says."""

import random

from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.gateway.control import bodies
from claw_r1.gateway.headers import client_headers
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.events import Event, TrajectoryRecord
from tests import facts
from tests.agentflow.fake_gateway import FakeGateway

EPISODES = 200
HELLO = [{"role": "user", "content": "hi"}]
MADE_BY = {
    "rewards": (bodies.AssignReward, bodies.reward_assigned),
    "complete_trajectory": (bodies.CompleteTrajectory, bodies.trajectory_completed),
}


async def played(client: GatewayClient, trajectory_id: str, chance: random.Random) -> Episode:
    """An episode with rewards of calls, of the whole under several names, some of them corrected, and an outcome. Tenths: a sum
    that is rounded at each step is another one."""
    episode = Episode(client, TrajectoryId(trajectory_id, "g"), task={}, seed=0)
    for _ in range(chance.randint(1, 2)):
        reply = await episode.chat(HELLO)
        for name in chance.sample([None, "style", "tone"], chance.randint(0, 3)):
            await episode.reward(chance.randint(0, 9) / 10, call_id=reply.call_id, name=name)
    for _ in range(chance.randint(1, 3)):
        await episode.reward(chance.randint(0, 9) / 10, name=chance.choice([None, "style"]))
    episode.outcome = chance.randint(0, 9) / 10
    await episode.complete("completed")
    return episode


def events_of(fake: FakeGateway) -> list[Event]:
    """What the gateway makes of the requests; the keys of an SDK make hashes of their event ids."""
    accepted: list[Event] = []
    for action, body, headers in fake.requests:
        if action in MADE_BY:
            trajectory_id, group_id = body.pop("ids")
            kind, make = MADE_BY[action]
            labels = client_headers([(name.encode(), value.encode()) for name, value in headers.items()], None)
            identity = Identity(group_id=group_id, trajectory_id=trajectory_id)
            accepted.append(make(kind.model_validate(body), identity, labels, "gateway/1"))
    return accepted


async def test_what_an_episode_earned_is_its_return_in_the_pool() -> None:
    """Rewards of the episode and its outcome add up, in whatever order they arrive, and every episode is ready. To the bit: what
    solves a task by the one solves it by the other."""
    chance = random.Random(3)
    async with FakeGateway() as fake, GatewayClient(fake.url) as client:
        episodes = [await played(client, f"t{number}", chance) for number in range(EPISODES)]
        events = events_of(fake)
    events += [facts.call("g", one.trajectory.trajectory_id, call_id) for one in episodes for call_id in one.call_ids]
    state = None
    for event, position in facts.placed(chance.sample(events, len(events))):
        state = fold(state, event, position)
    records = {one.trajectory_id: one for one in project(state).values() if isinstance(one, TrajectoryRecord)}
    assert [one.trajectory.trajectory_id for one in episodes if not records[one.trajectory.trajectory_id].ready] == []
    totals = [records[one.trajectory.trajectory_id].return_total for one in episodes]
    assert [one.earned for one in episodes] == totals
