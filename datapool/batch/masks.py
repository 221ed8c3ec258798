"""The rules that mask responses of a trained trajectory. Pure.

A masked response is read as context of later calls and is not trained. Each filter of a spec that looks at single steps
is one row of `STEP_FILTERS` (docs/changing.md).
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import Curation, StepRecord

if TYPE_CHECKING:
    from claw_r1.datapool.batch.candidates import PooledTrajectory

TAGS_MISSING = "tags_missing"
UNANNOTATED = "quality_missing"
TOO_OLD = "too_old"
UNJUDGED = Curation()
UNSET: tuple[object, ...] = ((), {}, None, "pass")
"""Values of a spec's fields that filter nothing."""
RATIO_FLAWS = frozenset(
    {"greedy", "top_p", "top_k", "min_p", "penalties", "constrained", "logprobs", "logprobs_mismatch"}
    | {"spans", "spans_unknown", "spans_mismatch", "version_unknown", "policy_run_mixed"}
)
"""Reasons of a step that is not trainable by which only the ratio to its policy is lost:
its ids can be imitated."""
ID_FLAWS = frozenset({"prompt_ids", "token_ids"})
"""Without them the trainer renders its messages."""
IMITABLE_FLAWS = RATIO_FLAWS | ID_FLAWS


class Mask(NamedTuple):
    """The reason why a response is masked: `word` to count by, `sentence` for a person."""

    word: str
    sentence: str


class AnnotatedStep(NamedTuple):
    """A step with its annotations and tags, including tags of its trajectory and group."""

    step: StepRecord
    member: "PooledTrajectory"

    @property
    def curation(self) -> Curation:
        """An empty one where nobody judged the step."""
        return self.step.curation or UNJUDGED

    @property
    def tags(self) -> frozenset[str]:
        """The tags of the step: captured, by curation, and of its trajectory and group."""
        return self.member.tags.union(self.step.tags, self.curation.tags)


class StepFilter(NamedTuple):
    """A filter over steps: the field of the spec that sets it, and the masks that it puts on a step."""

    field: str
    masks: Callable[[AnnotatedStep, BatchSpec], Iterator[Mask]]


def is_trained(step: StepRecord, member: "PooledTrajectory", spec: BatchSpec) -> bool:
    """Returns whether the response of a member's step is trained; otherwise it is masked."""
    return mask_of(step, member, spec) is None


def mask_of(step: StepRecord, member: "PooledTrajectory", spec: BatchSpec) -> Mask | None:
    """Returns why the response of a trained member's step is masked; None where it is trained."""
    if not (step.trainable or (spec.policy == "any" and is_imitable(step))) or step.position is None:
        return Mask("not_trainable", ", ".join(step.reasons))
    annotated = AnnotatedStep(step, member)
    return next((mask for step_filter in STEP_FILTERS for mask in step_filter.masks(annotated, spec)), None)


def is_imitable(step: StepRecord) -> bool:
    """Returns whether the response can be imitated, from any policy. Without ids its record shows it as empty."""
    flaws = set(step.reasons)
    return IMITABLE_FLAWS.issuperset(flaws - {"response_empty"} if ID_FLAWS & flaws else flaws)


def mask_at(step: StepRecord, member: "PooledTrajectory", spec: BatchSpec, version: int) -> Mask | None:
    """The same in a batch for that version: a response of which every token is too old is masked, too."""
    if mask := mask_of(step, member, spec):
        return mask
    oldest = spec.oldest_version(version)
    if is_young(step, oldest):
        return None
    return Mask(TOO_OLD, f"all its tokens are older than version {oldest}")


def is_young(step: StepRecord, oldest: int | None) -> bool:
    """Returns whether some token of the response may be trained by its version. oldest: `BatchAssembled.oldest_version`."""
    return oldest is None or step.max_version is None or step.max_version >= oldest


def step_filters(spec: BatchSpec) -> dict[str, Any]:  # JSON
    """The fields of a spec that filter steps and are set, with their values; empty: no trainable step is masked."""
    fields = spec.model_dump(include={step_filter.field for step_filter in STEP_FILTERS})
    return {name: value for name, value in fields.items() if value not in UNSET}


def _tags(step: AnnotatedStep, spec: BatchSpec) -> Iterator[Mask]:
    if spec.tags:
        for tag in sorted(frozenset(spec.tags) - step.tags):
            yield Mask(f"{TAGS_MISSING}: {tag}", f"neither it nor its trajectory or group carries the tag {tag}")


def _tags_exclude(step: AnnotatedStep, spec: BatchSpec) -> Iterator[Mask]:
    if spec.tags_exclude:
        for tag in sorted(frozenset(spec.tags_exclude) & step.tags):
            yield Mask(f"tags_excluded: {tag}", f"it, its trajectory or its group carries the tag {tag}")


def _quality_min(step: AnnotatedStep, spec: BatchSpec) -> Iterator[Mask]:
    if spec.quality_min is not None and step.curation.quality is not None and step.curation.quality < spec.quality_min:
        yield Mask("quality_low", f"quality {step.curation.quality:g} is below {spec.quality_min:g}")


def _scores(step: AnnotatedStep, spec: BatchSpec) -> Iterator[Mask]:
    for scorer, bounds in sorted(spec.scores.items()):
        score = step.curation.scores.get(scorer)
        if score is not None and bounds.min is not None and score < bounds.min:
            yield Mask(f"quality_low: {scorer}", f"{scorer} {score:g} is below {bounds.min:g}")
        if score is not None and bounds.max is not None and score > bounds.max:
            yield Mask(f"quality_high: {scorer}", f"{scorer} {score:g} is above {bounds.max:g}")


def _quality_missing(step: AnnotatedStep, spec: BatchSpec) -> Iterator[Mask]:
    if spec.quality_missing == "pass":
        return
    if spec.quality_min is not None and step.curation.quality is None and not step.curation.scores:
        yield Mask(UNANNOTATED, "nobody judged its quality")
    for scorer in sorted(spec.scores.keys() - step.curation.scores.keys()):
        yield Mask(f"{UNANNOTATED}: {scorer}", f"{scorer} has not looked at it")


STEP_FILTERS = (
    StepFilter("tags", _tags),
    StepFilter("tags_exclude", _tags_exclude),
    StepFilter("quality_min", _quality_min),
    StepFilter("scores", _scores),
    StepFilter("quality_missing", _quality_missing),
)
"""Filters in the order of their use. Missing scores come last: no score helps a step masked by another filter."""
