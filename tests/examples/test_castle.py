from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.evaluate import evaluate
from claw_r1.agentflow.settings import EvaluationPlan
from examples.castle.demonstrations import demonstration
from examples.castle.flow import CastleFlow
from examples.castle.rules import (
    LOCKS,
    ROOMS,
    TURNS_MAX,
    Castle,
    Visit,
    after,
    attempt,
    judge,
    right_action,
    view,
)
from tests.agentflow.fake_gateway import FakeGateway

SEEDS = st.integers(0, 2**63 - 1)
ACTIONS = st.sampled_from(["go n", "go e", "go s", "go w", "take", "open", "back", "GO N", ""])


@given(SEEDS)
def test_a_castle_is_a_function_of_its_seed(seed: int) -> None:
    """As many keys as locks, and before each lock as many keys as locks so far: whoever takes all gets out."""
    castle = Castle.from_seed(seed)
    assert castle == Castle.from_seed(seed)
    assert (len(castle.ways), len(castle.keys), len(castle.locks)) == (ROOMS, LOCKS, LOCKS)
    for number, lock in enumerate(sorted(castle.locks), 1):
        assert sum(key < lock for key in castle.keys) >= number


def test_castles_do_not_change_between_versions() -> None:
    """Seeds name the same castles for ever."""
    castle = Castle.from_seed(0)
    assert (castle.ways, sorted(castle.keys), sorted(castle.locks)) == ("seesensesnns", [0, 2, 6, 9], [2, 4, 8, 11])


@given(SEEDS)
def test_the_right_actions_win_in_twenty_turns(seed: int) -> None:
    """One turn per room, and one each to take and to use a key."""
    castle, visit, turns = Castle.from_seed(seed), Visit(), 0
    while (turn := judge(castle, visit)).observation is not None:
        visit, turns = after(castle, visit, right_action(castle, visit)), turns + 1
    assert (turn.reward, turns) == (1.0, ROOMS + 2 * LOCKS)


@given(SEEDS, st.lists(ACTIONS, max_size=TURNS_MAX + 5))
def test_no_play_breaks_the_castle(seed: int, actions: list[str]) -> None:
    """Keys are neither made nor lost, no lock is passed unopened, no reward before the end, and never more turns than there are."""
    castle, visit = Castle.from_seed(seed), Visit()
    for number, action in enumerate(actions, 1):
        visit = after(castle, visit, action)
        turn = judge(castle, visit)
        assert visit.keys + len(visit.opened) == len(visit.keys_taken)
        assert all(lock in visit.opened or lock >= visit.passed for lock in castle.locks)
        assert visit.keys_taken <= castle.keys
        assert (turn.observation is None) == (visit.room == ROOMS or number == TURNS_MAX)
        if turn.observation is None:
            assert turn.reward == (1.0 if visit.room == ROOMS else 0.5 * visit.passed / ROOMS)
            return
        assert turn.reward == 0.0
        assert ("key" in turn.observation) == (visit.room in castle.keys - visit.keys_taken)


@given(SEEDS)
def test_a_key_left_behind_stops_at_its_lock(seed: int) -> None:
    """Walking past every key ends at the first lock, after all turns, with the share that was walked."""
    castle = Castle.from_seed(seed)
    play, visit, total = attempt(castle), Visit(), 0.0
    for _ in range(TURNS_MAX):
        action = "open" if visit.room in castle.locks else f"go {castle.ways[visit.room]}"
        visit = after(castle, visit, action)
        total += play(action).reward
    assert total == 0.5 * min(castle.locks) / ROOMS


@given(st.randoms())
def test_demonstrations_are_games_of_the_rules(rng: Any) -> None:
    """A user's word first, then tools', an action after each, never more than a game has."""
    talk = demonstration(rng)
    assert [message["role"] for message in talk] == ["user", *["assistant", "tool"] * (len(talk) // 2 - 1), "assistant"]
    assert len(talk) // 2 <= TURNS_MAX


async def test_the_flow_plays_a_whole_game() -> None:
    """A model that takes what it sees wins each game in 20 calls; the conversation is only appended to."""

    def model(messages: list[dict[str, Any]]) -> str:
        seen = messages[-1]["content"]
        return "take" if "key" in seen else "open" if "lock" in seen else f"go {seen.split()[1]}"

    async with FakeGateway(model) as fake, GatewayClient(fake.url) as client:
        result = await evaluate(CastleFlow(), client, EvaluationPlan(episodes=4))
    assert [(episode.reward, episode.calls) for episode in result.episodes] == [(1.0, 20)] * 4
    assert all(len(episode.transcript) == 40 for episode in result.episodes)
    castle = Castle.from_seed(1)
    assert view(castle, Visit()) == f"way {castle.ways[0]}" + " key" * (0 in castle.keys)
