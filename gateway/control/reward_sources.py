"""The sources that a reward may name: callers without a key and agents speak as sources of a list, and of nobody else.

Invariant: an agent in training writes no scorer's or person's reward, none ahead of its time, and no revision of how
its trajectory began or ended: the next event of a trusted source outranks it. docs/rewards.md says which trust each source has.
"""

from collections.abc import Sequence

from claw_r1.gateway.errors import Forbidden
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.envelopes import now_us

AGENT = "agent"
"""The source of completions' rewards, and of those that name none."""
AHEAD_MAX_US = 60_000_000
"""The most microseconds by which a revision may be above the present time: a higher one would silence its slot."""


class RewardSources:
    """The sources of agents (`reward_sources` of the settings)."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def require(self, key: ApiKey | None, source: str, revision: int = 0) -> None:
        """Raises Forbidden for a source that this caller may not speak as, and for a revision that is ahead."""
        if key is not None and key.role != AGENT:
            return
        if source not in self._sources:
            raise Forbidden(
                f"the source {source!r} needs a key of the role operator; agents, and callers without a key, speak as "
                f"{' or '.join(self._sources) or 'none'} (setting reward_sources)",
                param="source",
                code="not_its_source",
            )
        if is_ahead(revision):
            raise Forbidden(
                "a revision of an agent's word must not be above the present time in microseconds", param="revision"
            )


def refuse_revision(key: ApiKey | None, revision: int) -> None:
    """Raises Forbidden for a revision of an opening, a registration or a completion from an agent, or without a key: it outranks
    status and time, and whoever plays an agent says none."""
    if revision and (key is None or key.role == AGENT):
        raise Forbidden(
            "a revision of an opening, a registration or a completion needs a key of the role operator: without one the "
            "later word counts",
            param="revision",
        )


def is_ahead(revision: int) -> bool:
    """Returns whether this revision is ahead of the present time, in microseconds."""
    return revision > now_us() + AHEAD_MAX_US
