"""`rewards.yaml` as slots. Invariant: what is returned can run; whatever cannot is one line that names file,
slot and field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings, kind_of

SLOT = re.compile(r"(?!.*\.g\d+$)[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+")
"""`.g1` at the end is of a generation's group. Of what is safe in the name of a consumer group; a person's source
(`human:…`) has a colon and is no scorer's."""
RESERVED = "agent/completion"
PROBLEMS = {"missing": "a value is required", "extra_forbidden": "there is no such setting"}
SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9}


class ConfigRefused(ConsumerError):
    """rewards.yaml cannot be used; one line with file, slot and field."""


def _count(value: object) -> object:
    """`5M` as 5000000."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)([kMG])", value.strip())):
        return int(float(match[1]) * SUFFIXES[match[2]])
    return value


class ScoringBudget(BaseModel):
    """The budget of a slot."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tokens_per_day: Annotated[int, BeforeValidator(_count)] = Field(ge=0)
    """Tokens of verdicts per UTC day, all processes together: 200000, 200k, 5M. What is beyond
    waits, as `budget_spent`."""


class SlotOptions(BaseModel):
    """The options that every slot has, whatever its kind; the kind does not see it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    since: Literal["beginning", "now"] = "beginning"
    """The beginning of a slot that never ran: with the first record of the log, or with the next. One that ran, and was off for so long
    that Kafka has dropped its offsets, begins with the first record again, or where its newest verdict was kept."""
    channels: tuple[str, ...] = ()
    """Only these channels; none named: all but `judge`, which is never scored."""
    tags: tuple[str, ...] = ()
    """Only subjects with one of these tags; none named: all."""
    budget: ScoringBudget | None = None


@dataclass(frozen=True, slots=True)
class ScoredSlot:
    """One entry of the file."""

    scorer: ScorerSettings
    options: SlotOptions
    kind: Kind
    generation: int = 0
    digest: str = ""
    """`ScorerSettings.digest` when the file was read."""

    @property
    def name(self) -> str:
        """`source/name`."""
        return self.scorer.slot

    def group_id(self, prefix: str) -> str:
        """The consumer group, and what its transactional ids begin with."""
        live = group_name(prefix, self.name)
        return live if self.generation == 0 else f"{live}.g{self.generation}"


def group_name(prefix: str, slot: str) -> str:
    """The consumer group of a slot's live work. slot: `source/name`."""
    return f"{prefix}.rewards.{slot.replace('/', '.', 1)}"


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the second of two equal keys win, which would drop a scorer without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # as YAML has them
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                line = node.value[at][0].start_mark.line + 1
                raise yaml.YAMLError(f"{key} stands there twice (line {line})")
        return super().construct_mapping(node, deep)


def load(path: Path) -> tuple[ScoredSlot, ...]:
    """The slots of a file, in its order. Raises ConfigRefused."""
    try:
        raw = yaml.load(path.read_text(), _UniqueKeys)  # noqa: S506  # a safe loader
    except FileNotFoundError:
        _refuse(path, "is not there; docs/rewards.md shows one")
    except (OSError, yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        _refuse(path, str(error))
    scorers = raw.get("scorers") if isinstance(raw, dict) else None
    if not isinstance(scorers, dict) or not scorers:
        _refuse(path, "scorers: it names no scorer; one is written `source/name: {use: …, version: 1, scope: …}`")
    if stray := [key for key in raw if key != "scorers"]:
        _refuse(path, f"{stray[0]}: there is no such setting")
    return tuple(_slot(path, str(name), fields) for name, fields in scorers.items())


def slot_named(slots: tuple[ScoredSlot, ...], name: str) -> ScoredSlot:
    """Raises ConfigRefused when there is none of that name."""
    for slot in slots:
        if slot.name == name:
            return slot
    raise ConfigRefused(f"no scorer {name}; there are: {', '.join(slot.name for slot in slots)}")


def _slot(path: Path, name: str, fields: object) -> ScoredSlot:
    if not SLOT.fullmatch(name) or name == RESERVED:
        rule = "a slot is source/name, of letters, digits, _ and -, without .g1 at its end"
        _refuse(path, f"{name}: {rule}; {RESERVED} is the completion's own")
    if not isinstance(fields, Mapping):
        _refuse(path, f"{name}: its settings are a mapping: {{use: …, version: 1, scope: …}}")
    use = fields.get("use")
    if not isinstance(use, str) or not use:
        _refuse(path, f"{name}: use: a value is required")
    try:
        kind = kind_of(use)
    except ImportError as error:
        _refuse(path, f"{name}: use: {use} needs a package that is not installed ({error})")
    own = {key: value for key, value in fields.items() if key in SlotOptions.model_fields}
    rest = {key: value for key, value in fields.items() if key not in own}
    source, _, short = name.partition("/")
    try:
        options = SlotOptions.model_validate(own)
        context = {"folder": path.parent}
        scorer = kind.settings.model_validate(
            {**rest, "source": source, "name": short, "generation": 0}, context=context
        )
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        message = PROBLEMS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        _refuse(path, ": ".join([name, ".".join(map(str, problem["loc"])), message]))
    if scorer.scope not in scorer.SCOPES:
        _refuse(path, f"{name}: scope: {use} cannot judge {scorer.scope}, but {', '.join(scorer.SCOPES)}")
    return ScoredSlot(scorer, options, kind, digest=scorer.digest)


def _refuse(path: Path, message: str) -> NoReturn:
    raise ConfigRefused(" ".join(f"{path}: {message}".split()))
