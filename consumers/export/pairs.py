"""Chooses the pairs of a group for export as preferences: by people's (or scorers') preferences, by rewards, by
edits. Pure.

Policy, which every dataset states by its manifest:
- Each person has one vote. If people disagree on a pair, the majority counts; a pair with equal votes is omitted.
- Ties and "both bad" are no votes. A pair with no other votes is omitted.
- Preferences in a circle (A over B, B over C, C over A) say nothing about their members: all on a circle are omitted.
- By rewards the best member goes with the worst, the second with the second worst, and so on while they differ by the
  margin: each member is in one pair at most, and no pairs contradict each other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from claw_r1.consumers.export.choose import Chosen
from claw_r1.datapool.batch.spec import matches
from claw_r1.datapool.feedback import OVERALL, FeedbackSubject
from claw_r1.datapool.personal_words import PersonalWord
from claw_r1.schemas.events import PreferenceGiven, RewardSlot

PairSource = Literal["preferences", "rewards", "edits"]


class PairSettings(BaseModel):
    """The settings that make pairs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sources: tuple[PairSource, ...] = ("preferences", "edits")
    preference: str = OVERALL
    """Name of the preferences that count, since one may be clearer and the other more correct."""
    margin: float = Field(default=0.0, ge=0)
    """Least difference of two rewards; equal ones make no pair."""
    slot: str | None = None
    """`source/name` of the rewards, a pattern: of trajectories, and of calls with one prompt. None: the return."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair before its texts are put together."""

    source: PairSource
    chosen: FeedbackSubject
    rejected: FeedbackSubject
    name: str
    who: tuple[str, ...] = ()
    """Sources of the words or rewards that made it."""
    margin: float | None = None
    """Difference of the rewards; of preferences the mean of the strengths that were given."""
    event_ids: tuple[str, ...] = ()
    edit: dict[str, Any] | None = None
    """The better reply, an assistant's message; then chosen is the call itself."""


def pairs_of(
    members: Sequence[Chosen], words: Sequence[PersonalWord], settings: PairSettings, left_out: Counter[str]
) -> list[Pair]:
    """The pairs of a group, in a fixed order. words: the current ones; left_out: counts omitted pairs by reason."""
    pairs: list[Pair] = []
    if "preferences" in settings.sources:
        pairs += preferred(words, settings.preference, left_out)
    if "rewards" in settings.sources:
        pairs += rewarded(members, settings)
    if "edits" in settings.sources:
        pairs += edited(words)
    return pairs


def preferred(words: Iterable[PersonalWord], name: str, left_out: Counter[str]) -> list[Pair]:
    """Returns the preferences of the majority, without circles."""
    votes: dict[frozenset[FeedbackSubject], list[PersonalWord]] = defaultdict(list)
    for word in words:
        if word.other is not None and word.name == name:
            votes[frozenset((word.subject, word.other))].append(word)
    decided: list[Pair] = []
    for cast in votes.values():
        pair = _majority(cast)
        if isinstance(pair, Pair):
            decided.append(pair)
        else:
            left_out[pair] += 1
    beaten: dict[FeedbackSubject, set[FeedbackSubject]] = defaultdict(set)
    for pair in decided:
        beaten[pair.chosen].add(pair.rejected)
    straight = [pair for pair in decided if pair.chosen not in _below(pair.rejected, beaten)]
    left_out["circle"] += len(decided) - len(straight)
    return sorted(straight, key=lambda pair: (str(pair.chosen), str(pair.rejected)))


def _majority(cast: Sequence[PersonalWord]) -> Pair | str:
    """The pair, or why there is none."""
    for_one: dict[FeedbackSubject, list[PersonalWord]] = defaultdict(list)
    for word in cast:
        if isinstance(word.fact, PreferenceGiven) and word.fact.outcome == "chosen":
            for_one[word.subject].append(word)
    if not for_one:
        return "tie"
    (_, winners), *rest = sorted(for_one.items(), key=lambda item: -len(item[1]))
    if rest and len(rest[0][1]) == len(winners):
        return "contradicted"
    first = winners[0]
    assert first.other is not None
    strengths = [fact.strength for word in winners if (fact := _preference(word)).strength is not None]
    return Pair(
        "preferences",
        first.subject,
        first.other,
        first.name,
        tuple(sorted(word.source for word in winners)),
        fmean(strength for strength in strengths if strength is not None) if strengths else None,
        tuple(sorted(word.fact.envelope.event_id for word in winners)),
    )


def _preference(word: PersonalWord) -> PreferenceGiven:
    assert isinstance(word.fact, PreferenceGiven)
    return word.fact


def _below(top: FeedbackSubject, beaten: dict[FeedbackSubject, set[FeedbackSubject]]) -> set[FeedbackSubject]:
    """All that it is preferred to, directly or through others."""
    below: set[FeedbackSubject] = set()
    ahead = [top]
    while ahead:
        fresh = beaten.get(ahead.pop(), set()) - below
        below |= fresh
        ahead += fresh
    return below


def rewarded(members: Sequence[Chosen], settings: PairSettings) -> Iterator[Pair]:
    """The best with the worst, and so on inwards: of trajectories, and under a slot of calls that were asked the same."""
    name = settings.slot or "return"
    for ranked in _ranked(members, settings.slot):
        ranked.sort(key=lambda one: (-one[0], str(one[1])))
        for best, worst in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
            margin = best[0] - worst[0]
            if margin > 0 and margin >= settings.margin:
                yield Pair("rewards", best[1], worst[1], name, tuple(sorted({*best[2], *worst[2]})), margin)


Ranked = tuple[float, FeedbackSubject, tuple[str, ...]]
"""A reward with its subject and sources."""


def _ranked(members: Sequence[Chosen], slot: str | None) -> Iterator[list[Ranked]]:
    """Each list is of subjects that may be compared."""
    whole: list[Ranked] = []
    of_prompt: dict[str, list[Ranked]] = defaultdict(list)
    for member in members:
        own = FeedbackSubject(member.record.group_id, member.record.trajectory_id)
        if slot is None:
            whole += [] if member.earned is None else [(member.earned, own, ())]
            continue
        whole += _of_slot((each for each in member.record.rewards if each.step_index is None), slot, own)
        for step in member.steps:
            if step.prompt_id and step.prompt_length:
                of_prompt[step.prompt_id] += _of_slot(step.rewards, slot, FeedbackSubject(*own[:2], step.call_id))
    yield whole
    yield from (of_prompt[prompt_id] for prompt_id in sorted(of_prompt))


def _of_slot(slots: Iterable[RewardSlot], pattern: str, subject: FeedbackSubject) -> list[Ranked]:
    """The mean of the slots that match, if any has a value."""
    values = [
        (slot.value, slot.source)
        for slot in slots
        if slot.value is not None and matches(pattern, f"{slot.source}/{slot.name}")
    ]
    sources = tuple(sorted({source for _, source in values}))
    return [(fmean(value for value, _ in values), subject, sources)] if values else []


def edited(words: Iterable[PersonalWord]) -> list[Pair]:
    """Each better reply against what was sampled."""
    pairs = [
        Pair(
            "edits",
            word.subject,
            word.subject,
            word.name,
            (word.source,),
            None,
            (word.fact.envelope.event_id,),
            word.message,
        )
        for word in words
        if word.kind == "edit"
    ]
    return sorted(pairs, key=lambda pair: (str(pair.chosen), pair.who))
