"""The description of a batch. One description serves the trainer, the dashboard's preview and the exporter.

Invariant: everything that decides whether a group is trained, and with which reward, stands here and not in the pool.
"""

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import TypedDict

from claw_r1.datapool.batch.advantages import ESTIMATORS, Estimator
from claw_r1.datapool.batch.shares import wrong_shares
from claw_r1.datapool.errors import BatchSpecInvalid
from claw_r1.schemas.http import CallKind, Channel, kind_tag

if TYPE_CHECKING:
    Algorithm = str
else:
    Algorithm = Literal[tuple(ESTIMATORS)]  # a new row of the table is a new value; a type checker cannot follow that
Weight = Annotated[float, Field(ge=0)]
SlotPattern = str
"""`source/name` of reward slots, in which each `*` matches any text; `*` alone for every slot."""
PRIORITY_TAG = "priority:"


class Bounds(BaseModel):
    """An interval, its ends included; one end may be open."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("bounds need a min or a max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}: nothing could pass")
        return self


class MissingReward(TypedDict):
    """The value of a required reward where there is none; no model, because a flag takes it beside plain words."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[misc]  # as pydantic reads it

    value: float
    wait: NotRequired[bool]
    """Until its scorer has given up; not set, the plan is made without it."""


def _is_missing_reward(raw: Any) -> Any:  # Any: whatever a file or a flag says
    """One message for the word and the mapping, whichever was meant."""
    with suppress(TypeError, ValueError):
        if raw in ("wait", "reject") or (set(raw) <= {"value", "wait"} and math.isfinite(float(raw["value"]))):
            return raw
    raise ValueError(f"{raw!r} is none of: wait, reject, {{value: X}}, {{value: X, wait: true}}")


class BatchSpec(BaseModel):
    """Frozen; unknown fields and contradictions are refused. `preset: NAME` stands for the
    fields of `PRESETS[NAME]`."""

    # The docstrings of the fields are their descriptions: `claw pool batch --explain` shows them.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    algorithm: Algorithm = "grpo"
    """The way in which rewards become advantages (docs/batches.md)."""
    policy: Literal["own", "any"] = "own"
    """The source of the replies that are trained: those that this run's versions sampled, or anybody's (of other runs,
    of providers, greedy or constrained ones; without ids their messages are rendered by the model's template). any: for
    cross-entropy alone."""
    groups_per_batch: int = Field(default=8, ge=1)
    """Groups of a whole batch."""
    group_size: int = Field(default=8, ge=1)
    """Trajectories of a group without a declared size. A baseline over a group needs two."""
    staleness_max: int = Field(default=1, ge=0)
    """Versions that may lie between the oldest token of a group and the version that is trained."""
    stale: Literal["group", "tokens"] = "group"
    """The unit that is too old: a whole group by its oldest token, or each token by itself: older ones are context
    only, and a group is never trained when it has no token young enough."""
    channel: str = Channel.TRAIN
    """The channel of a group; `val` is refused."""
    tags: tuple[str, ...] = ()
    """A response is trained when it carries all of these: itself (as captured, or by curation), or its
    trajectory or group."""
    tags_exclude: tuple[str, ...] = (kind_tag(CallKind.SIDE),)
    """A response that carries one of these, in the same sense, is masked; a group that does is not trained. Not set: side
    calls (titles, summaries), which do not work on the task."""
    reward_weights: Mapping[str, float] = Field(default_factory=dict)
    """`source/name` of a reward slot -> its weight in every return; in it `*` matches any text
    (`human:*/overall`), alone all others (1 unless given). The exact name counts before patterns, of these the
    one with the most other characters (equal ones: the first by name). A slot of weight 0 counts as absent."""
    reward_merge: Literal["mean", "median", "majority", "latest"] = "mean"
    """The way in which the slots that several people (`human:<who>/NAME`) filled under one name become one reward of
    their call or trajectory, each multiplied by its weight first. majority: the most frequent value; in a tie, the mean
    of these."""
    reward_prefer: tuple[tuple[SlotPattern, ...], ...] = ()
    """Lists of slots: in each call, and in the trajectory itself, of every list only those count that the first pattern with a
    reward there matches, the others of it as if absent."""
    rewards_required: tuple[SlotPattern, ...] = ()
    """Each trajectory must have a reward in such a slot, itself or each of its calls that would be trained. One whose scorer
    gave up is left out (unless `reward_missing` has a value), and its group goes on without it."""
    reward_missing: Annotated[Literal["wait", "reject"] | MissingReward, BeforeValidator(_is_missing_reward)] = "wait"
    """A trajectory that lacks a required reward. wait: its group waits, until it is closed (then the trajectory is left out) or
    too stale; reject: the trajectory is as if it had never been played; {value: X}: the reward counts as X, with wait: true only
    once its scorer gave up or the group is closed."""
    reward_mean_min: float | None = None
    """Groups whose mean return is lower are never trained (all failed); null: no threshold."""
    reward_mean_max: float | None = None
    """Groups whose mean return is higher are never trained (solved); null: no threshold."""
    return_min: float | None = None
    """Trajectories with a lower return count in baselines and are not trained; null: no threshold."""
    best_of: int | None = Field(default=None, ge=1)
    """So many trajectories of a group are trained, those with the highest returns (equal ones:
    first by id); null: all."""
    quality_min: float | None = None
    """Responses of steps that were judged with a lower quality are masked."""
    scores: Mapping[str, Bounds] = Field(default_factory=dict)
    """Scorer (`name@version`) -> bounds; responses of steps that it scored outside them are masked."""
    quality_missing: Literal["pass", "reject", "wait"] = "pass"
    """An unjudged step, although `quality_min` or `scores` require it: it passes, it is masked, or its group waits
    (for `claw quality`, say; until it gets too stale). A scorer that returned a null score has judged."""
    zero_variance: Literal["keep", "drop"] = "keep"
    """Groups whose returns are all equal: kept with advantage 0 (they hold the batch size), or never trained."""
    truncated: Literal["train", "mask", "drop"] = "train"
    """Trajectories whose last reply was cut off by its length: trained like others, in the baseline only (DAPO's overlong
    filtering), or not even there."""
    unfinished: Literal["train", "mask", "drop"] = "drop"
    """The same of trajectories that were abandoned. Those without any reward are dropped whatever this says."""
    mix: Mapping[str, tuple[Weight, Weight, Weight]] = Field(default_factory=dict)
    """Tag -> weights of the policy loss, of cross-entropy and of the reference KL in responses that carry it (of several, the
    first by name), so that one batch imitates some responses and reinforces others; untagged ones have 1, 0, 1."""
    environments: Mapping[str, float] = Field(default_factory=dict)
    """Environment (NAME of a group's tag `env:NAME`) -> its share of the groups of each batch; they add up to 1, and
    groups of no other environment are trained. Not set: groups are taken whatever environment they are of."""
    response_tokens_max: int | None = Field(default=None, ge=1)
    """Sampled tokens that one batch trains at most; a batch that is full by this bound has fewer groups."""
    order: Literal["fifo", "newest", "priority"] = "fifo"
    """The order of the ready groups: the oldest, the newest, or those whose tag `priority:<number>` is highest (no such
    tag: 0; equal ones: the oldest)."""

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, raw: Any) -> Any:  # Any: whatever a file says
        if not isinstance(raw, dict) or "preset" not in raw:
            return raw
        name = raw["preset"]
        if not isinstance(name, str) or name not in PRESETS:
            raise ValueError(f"preset: {name!r}; there are: {', '.join(PRESETS)}")
        return {**PRESETS[name], **{field: value for field, value in raw.items() if field != "preset"}}

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        low, high = self.reward_mean_min, self.reward_mean_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_mean_min: {low:g} is above reward_mean_max, {high:g}: no group could pass")
        if self.channel == Channel.VALIDATION:
            raise ValueError("channel: val is for evaluation and is never trained")
        if self.policy == "any" and self.estimator.loss != "cross_entropy":
            raise ValueError(
                f"policy: any has no ratio, which {self.algorithm} needs; take algorithm sft, or policy: own"
            )
        if self.policy == "any" and self.stale == "tokens":
            raise ValueError("stale: tokens goes by versions, of which policy: any knows none; drop it")
        if self.group_size < self.estimator.members_min:
            raise ValueError(
                f"group_size {self.group_size}: {self.algorithm} needs {self.estimator.members_min} trajectories"
            )
        if contradictory := sorted({*self.tags} & {*self.tags_exclude}):
            raise ValueError(f"tags_exclude: {contradictory[0]!r} is in tags, too: nothing could pass")
        if invalid := sorted(name for name in self.scores if "@" not in name):
            raise ValueError(f"scores: {invalid[0]!r} is no name@version of a scorer")
        if self.quality_missing != "pass" and self.quality_min is None and not self.scores:
            raise ValueError(
                f"quality_missing: {self.quality_missing} asks for quality_min or scores, else nothing is missing"
            )
        for message in (*self._wrong_slots(), *wrong_shares(self.environments)):
            raise ValueError(message)
        return self

    def _wrong_slots(self) -> Iterator[str]:
        """Lists the contradictions in the fields that name reward slots."""
        prefer = [name for names in self.reward_prefer for name in names]
        fields = {
            "reward_weights": self.reward_weights,
            "reward_prefer": prefer,
            "rewards_required": self.rewards_required,
        }
        for field, names in fields.items():
            yield from (f"{field}: {name!r} is no source/name" for name in names if name != "*" and "/" not in name)
            if field != "reward_weights":
                unheard = (name for name in names if "*" not in name and self.slot_weight(name) == 0)
                yield from (f"{field}: {name!r} has weight 0: as if it was never given" for name in unheard)
        yield from (
            f"reward_prefer: {list(names)} prefers nothing; name two" for names in self.reward_prefer if len(names) < 2
        )
        twice = sorted({name for name in prefer if prefer.count(name) > 1})
        yield from (f"reward_prefer: {name!r} stands there twice" for name in twice)
        for names in self.reward_prefer:
            behind = ((first, name) for n, name in enumerate(names) for first in names[:n] if matches(first, name))
            yield from (f"reward_prefer: {name!r} is behind {first!r}, which is all of it" for first, name in behind)
        if self.reward_missing != "wait" and not self.rewards_required:
            yield "reward_missing: asks for rewards_required, else nothing is missing"

    @property
    def estimator(self) -> Estimator:
        """The estimator that `algorithm` names."""
        return ESTIMATORS[self.algorithm]

    def weight(self, source: str, name: str) -> float:
        """Returns the weight of a reward slot."""
        return self.slot_weight(f"{source}/{name}")

    def slot_weight(self, slot: str) -> float:
        """The same, by its whole name."""
        weight = self.reward_weights.get(slot)
        return weight if weight is not None else self.reward_weights.get(self._pattern_of(slot), 1.0)

    def _pattern_of(self, slot: str) -> SlotPattern:
        """Returns the pattern in `reward_weights` that counts for a slot without an entry of its own; empty: none."""
        matching = (pattern for pattern in self.reward_weights if "*" in pattern and matches(pattern, slot))
        return min(matching, key=lambda pattern: (pattern.count("*") - len(pattern), pattern), default="")

    def oldest_version(self, version: int) -> int | None:
        """Returns the oldest version whose tokens a batch for `version` trains; None: a group's staleness alone decides."""
        return max(version - self.staleness_max, 0) if self.stale == "tokens" and self.policy == "own" else None

    @property
    def needs_returns(self) -> bool:
        """A trajectory without reward has to wait for one."""
        thresholds = (self.reward_mean_min, self.reward_mean_max, self.return_min, self.best_of)
        return self.policy == "own" or self.zero_variance == "drop" or any(each is not None for each in thresholds)

    def to_json(self) -> str:
        """Canonical JSON, as a plan carries it. Fields newer than plans are omitted if not set."""
        unset = {name for name in LATER_FIELDS if name not in self.model_dump(include={name}, exclude_defaults=True)}
        return json.dumps(self.model_dump(mode="json", exclude=unset), sort_keys=True, separators=(",", ":"))


LATER_FIELDS = ("environments", "reward_merge", "reward_prefer", "rewards_required", "reward_missing")


@lru_cache(maxsize=4096)
def matches(pattern: SlotPattern, slot: str) -> bool:
    """Returns whether a pattern means a slot. slot: `source/name`."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), slot, re.DOTALL) is not None


PRESETS: Mapping[str, Mapping[str, Any]] = {  # Any: values of any field
    "grpo": {"algorithm": "grpo"},
    "dr_grpo": {"algorithm": "dr_grpo"},
    "rloo": {"algorithm": "rloo", "group_size": 4, "groups_per_batch": 16},
    "reinforce_pp": {"algorithm": "reinforce_pp", "group_size": 1, "groups_per_batch": 64},
    "reinforce_pp_baseline": {"algorithm": "reinforce_pp_baseline"},
    "step_grpo": {"algorithm": "step_grpo"},
    "gae": {"algorithm": "gae", "group_size": 1, "groups_per_batch": 64},
    "sft_logged": {"algorithm": "sft", "policy": "any", "group_size": 1, "groups_per_batch": 64},
    "sft_best": {"algorithm": "sft", "best_of": 1, "zero_variance": "drop", "staleness_max": 1_000_000},
}
"""Starting points; a file names one with `preset` and changes what it likes. 64 trajectories a
batch each, SFT aside."""


def load(path: Path) -> BatchSpec:
    """A spec from a YAML or JSON file. Raises BatchSpecInvalid with one line that names the file and the field."""
    try:
        return of_text(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BatchSpecInvalid(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    except BatchSpecInvalid as error:
        raise BatchSpecInvalid(f"{path}: {error}") from error


def of_text(text: str) -> BatchSpec:
    """A spec from YAML or JSON. Raises BatchSpecInvalid with one line that names the field."""
    try:
        return BatchSpec.model_validate(fields_of(text))
    except ValidationError as error:
        raise BatchSpecInvalid(first_problem(error)) from error


def parsed_spec(text: str) -> BatchSpec | None:
    """Returns the spec of a plan, as `to_json` wrote it; None where another version of the code wrote it."""
    try:
        return BatchSpec.model_validate_json(text)
    except ValidationError:
        return None


def fields_of(text: str) -> Any:  # Any: whatever a text says
    """Reads the fields of YAML or JSON, unchecked. Raises BatchSpecInvalid where it is neither."""
    try:
        raw = yaml.load(text, _PlainLoader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        raise BatchSpecInvalid(f"cannot be read: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError) as error:  # of brackets; of a date or a number that is none
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise BatchSpecInvalid(f"cannot be read: {reason}") from error
    return raw if raw is not None else {}


class _PlainLoader(yaml.SafeLoader):
    """Without aliases: a few of them make a text of any length."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # Any: PyYAML has no types
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not taken: write the value again")
        return super().compose_node(parent, index)


def of_preset(name: str) -> BatchSpec:
    """The spec that a preset alone makes. Raises BatchSpecInvalid."""
    try:
        return BatchSpec.model_validate({"preset": name})
    except ValidationError as error:
        raise BatchSpecInvalid(first_problem(error)) from error


def first_problem(error: ValidationError) -> str:
    """The first problem of a validation in one line: `field: message`."""
    problem = error.errors()[0]
    where = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where[-1], [*BatchSpec.model_fields, "preset"], n=1)
        message = "no such field" + (f"; did you mean {near[0]}?" if near else "")
    elif problem["type"] == "value_error":
        message = problem["msg"].removeprefix("Value error, ")
    else:
        value = "" if isinstance(problem["input"], dict) else f"{problem['input']!r}: "
        message = value + WORDS.get(problem["type"], problem["msg"])
    return ": ".join((".".join(where), message)) if where else message


WORDS = {
    "tuple_type": "expected a list, such as [a, b]",
    "model_type": "expected a mapping of fields",
    "dict_type": "expected a mapping, such as {a: 1}",
}
"""Instead of those that speak of Python."""
