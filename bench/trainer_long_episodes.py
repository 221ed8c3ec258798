"""Episodes that outlast the staleness bound: of those 20 times longer than the rest, the share that is trained.

No model: versions go by, each with as many groups of one call as make a batch; beside them a group of episodes of 20 calls
is always under way, one call per version. staleness_max is 1. `group`, `tokens`: the settings of `spec.stale`; an episode is trained when a
plan holds it with at least one trained token. `tokens_trained`: share of the tokens of long episodes under `tokens`.
"""

import operator
import random
from functools import partial
from typing import Any

from bench.in_process import FoldedLog, PlayedCall, PlayedEpisode, facts_of
from claw_r1.datapool.batch.plan import assemble, groups_of
from claw_r1.datapool.batch.selection import Selector
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.envelopes import envelope
from claw_r1.trainer.plan.training_batch import read

TIMES_LONGER = 20
LONG_GROUPS = 8
GROUPS, MEMBERS, IDS = 4, 4, 8
VOCABULARY = 64
RUN = "bench"


def measure() -> dict[str, Any]:
    """Both shares."""
    group, _ = trained_share("group")
    tokens, share = trained_share("tokens")
    return {"long_episodes": {"group": group, "tokens": tokens, "tokens_trained": round(share, 4)}}


def trained_share(stale: str, long_groups: int = LONG_GROUPS) -> tuple[float, float]:
    """Returns the trained share of long episodes, and of their tokens."""
    dice, folded = random.Random(0), FoldedLog()
    spec = BatchSpec(groups_per_batch=GROUPS, group_size=MEMBERS, staleness_max=1, stale=stale)
    selector, consumed = Selector(folded.pool, spec, RUN), set[str]()
    trained, tokens = set[tuple[str, str]](), 0
    for version in range(long_groups * TIMES_LONGER + 1):
        long_ended = version > 0 and version % TIMES_LONGER == 0
        if long_ended:
            began = partial(operator.add, version - TIMES_LONGER)  # its n-th call was sampled by the version begun + n
            folded.write(facts_of(f"long{version:04d}", _episodes(dice, TIMES_LONGER), RUN, began))
        for number in range(GROUPS - long_ended):  # admission opens no more than a batch takes
            by_now = partial(operator.add, version)
            folded.write(facts_of(f"short{version:04d}-{number}", _episodes(dice, 1), RUN, by_now))
        selection = selector.select(version, consumed)
        consumed |= set(selection.skipped)
        plan = assemble(
            selection.chosen, spec, run_id=RUN, sequence=version, version=version, seed=0, envelope=envelope("bench")
        )
        for row in read(plan, folded.log.lookup(), VOCABULARY).rows:
            planned = plan.trajectories[row.trajectory]
            if planned.group_id.startswith("long") and any(row.mask):
                trained.add((planned.group_id, planned.trajectory_id))
                tokens += sum(row.mask)
        consumed |= set(groups_of(plan))
    long = long_groups * MEMBERS
    return len(trained) / long, tokens / (long * TIMES_LONGER * IDS)


def _episodes(dice: random.Random, calls: int) -> list[PlayedEpisode]:
    episodes = [PlayedEpisode(game=None) for _ in range(MEMBERS)]  # type: ignore[arg-type]  # already over
    for episode in episodes:
        prompt = [1, 2, 3]
        for _ in range(calls):
            ids = [dice.randrange(VOCABULARY) for _ in range(IDS)]
            episode.calls.append(PlayedCall(prompt, ids, [-1.0] * IDS))
            prompt = [*prompt, *ids, 4]
        episode.calls[-1].reward = dice.random()
    return episodes
