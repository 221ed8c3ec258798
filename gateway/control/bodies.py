"""Bodies of control requests, and the events that they become.

Output: `calls` (GroupOpened, TrajectoryStarted, TrajectoryCompleted) and `rewards` (RewardAssigned), key group_id.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec.structs import replace
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from claw_r1.datapool.fold.bounds import GROUP_SIZE_MAX
from claw_r1.datapool.fold.validation import COMPLETE_AGAIN, REWARD_MAX, is_of_completion
from claw_r1.gateway.callers.scopes import own_id, require_own
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.foreign_json import INT32_MAX
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.paths import CONTROL, Identity
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.envelopes import decision_id, envelope, new_id, now_us
from claw_r1.schemas.events import Envelope, GroupOpened, RewardAssigned, TrajectoryCompleted, TrajectoryStarted
from claw_r1.schemas.http import ID_CHARACTERS_MAX, OUTCOME_REWARD, REWARDS_HEADER, RIDING_MAX, TAGS_MAX, Channel

SURROGATE = re.compile("[\ud800-\udfff]")


def _clean(text: str) -> str:
    if CONTROL.search(text) or SURROGATE.search(text):
        raise ValueError("must hold no control characters and no lone surrogates")
    return text


def _json_value(value: Any) -> Any:  # any JSON value
    try:
        orjson.dumps(value)
    except TypeError as broken:
        raise ValueError(f"cannot be stored as JSON: {broken}") from broken
    return value


NameBody = Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS_MAX), AfterValidator(_clean)]
Tags = Annotated[tuple[NameBody, ...], Field(max_length=TAGS_MAX)]
JsonValue = Annotated[Any, AfterValidator(_json_value)]
Count = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]
Revision = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]
"""A higher one replaces a lower one, whatever the clocks of two gateways say."""
RewardValue = Annotated[FiniteFloat, Field(ge=-REWARD_MAX, le=REWARD_MAX, strict=True)]


class Body(BaseModel):
    """A request body. Unknown fields are refused, so that a misspelt one is not ignored silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenGroup(Body):
    """POST /groups"""

    group_id: NameBody | None = None
    size: Annotated[int, Field(ge=1, le=GROUP_SIZE_MAX, strict=True)] = 8
    channel: NameBody | None = None
    run_id: NameBody | None = None
    task: JsonValue = None
    deadline_s: Annotated[FiniteFloat, Field(gt=0, le=1e9, strict=True)] | None = None
    agent: NameBody | None = None
    tags: Tags = ()
    admission: bool = True
    ordinal: Annotated[int, Field(ge=0, lt=1 << 63, strict=True)] | None = None
    revision: Revision = 0


class RegisterTrajectory(Body):
    """POST …/register_trajectory"""

    channel: NameBody | None = None
    agent: NameBody | None = None
    task: JsonValue = None
    tags: Tags = ()
    run_id: NameBody | None = None
    metadata: JsonValue = None
    idle_s: Annotated[FiniteFloat, Field(gt=0, le=1e9, strict=True)] | None = None
    revision: Revision = 0


class CompleteTrajectory(Body):
    """POST …/complete_trajectory"""

    reward: RewardValue | None = None
    status: Literal["completed", "failed"] = "completed"
    calls: Count | None = None
    rewards: Count | None = None
    channel: NameBody | None = None
    """Accepted as in the other bodies, and not used: a completion has no channel of its own."""
    run_id: NameBody | None = None
    revision: Revision = 0


class AssignReward(Body):
    """POST …/rewards"""

    value: RewardValue | None
    """Null takes back what stands in the slot."""
    name: NameBody = OUTCOME_REWARD
    source: NameBody = "agent"
    call_id: NameBody | None = None
    step_index: Count | None = None
    revision: Revision = 0
    metadata: JsonValue = None
    run_id: NameBody | None = None

    @model_validator(mode="after")
    def _one_subject(self) -> "AssignReward":
        if self.call_id is not None and self.step_index is not None:
            raise ValueError("give call_id or step_index, not both")
        if is_of_completion(self.source, self.name, self.call_id, self.step_index):
            raise ValueError(COMPLETE_AGAIN)
        return self


RIDING = TypeAdapter(Annotated[list[AssignReward], Field(max_length=RIDING_MAX)])
"""The rewards that a call or a completion takes along in a header (docs/adr/0030)."""


def strict_json(raw: bytes) -> Any:  # any JSON value
    """Reads nothing but JSON: no NaN, no lone surrogates, exact integers. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as broken:
        raise InvalidRequest(f"the body is not valid JSON: {broken}") from broken


def not_valid(error: Mapping[str, Any], where: Sequence[object] | None = None) -> InvalidRequest:
    """Returns the refusal of a body, for an error of pydantic's. where: in the body; None: by the error itself."""
    place = ".".join(map(str, error["loc"] if where is None else where))
    return InvalidRequest(f"{place}: {error['msg']}" if place else str(error["msg"]), param=place or None)


def rewards_in(header: bytes) -> list[AssignReward]:
    """Returns the bodies that the header holds. Raises InvalidRequest."""
    try:
        rewards = RIDING.validate_python(strict_json(header))
    except ValidationError as broken:
        error = broken.errors()[0]
        raise not_valid(error, (REWARDS_HEADER, *error["loc"])) from broken
    except InvalidRequest as broken:
        raise InvalidRequest(
            broken.message.replace("the body", f"header {REWARDS_HEADER}"), param=REWARDS_HEADER
        ) from None
    return rewards


def numbered(headers: ClientHeaders, number: int) -> ClientHeaders:
    """Returns the headers of the n-th reward: its idempotency key is `<key>#<n>`."""
    key = headers.idempotency_key
    return headers if key is None else headers._replace(idempotency_key=f"{key}#{number}")


def group_opened(body: OpenGroup, group_id: str, headers: ClientHeaders, producer: str) -> GroupOpened:
    """The declaration of a group; its deadline counts from now."""
    return GroupOpened(
        envelope=_envelope(producer, body.run_id, headers, "GroupOpened", group_id),
        group_id=group_id,
        expected_size=body.size,
        channel=channel_of(body, headers),
        task=_json(body.task),
        deadline_us=None if body.deadline_s is None else now_us() + int(body.deadline_s * 1e6),
        agent=body.agent or headers.agent,
        tags=body.tags or headers.tags,
        ordinal=body.ordinal,
        revision=body.revision,
    )


def trajectory_started(
    body: RegisterTrajectory, who: Identity, headers: ClientHeaders, producer: str
) -> TrajectoryStarted:
    """The start of a trajectory, as its agent registers it."""
    return TrajectoryStarted(
        envelope=_envelope(producer, body.run_id, headers, "TrajectoryStarted", who.group_id, who.trajectory_id),
        group_id=who.group_id,
        trajectory_id=who.trajectory_id,
        channel=channel_of(body, headers),
        agent=body.agent or headers.agent,
        task=_json(body.task),
        tags=body.tags or headers.tags,
        metadata=_json(body.metadata),
        idle_s=body.idle_s,
        revision=body.revision,
    )


def trajectory_completed(
    body: CompleteTrajectory, who: Identity, headers: ClientHeaders, producer: str
) -> TrajectoryCompleted:
    """The end of a trajectory, as its agent reports it."""
    return TrajectoryCompleted(
        envelope=_envelope(producer, body.run_id, headers, "TrajectoryCompleted", who.group_id, who.trajectory_id),
        group_id=who.group_id,
        trajectory_id=who.trajectory_id,
        status=body.status,
        calls=body.calls,
        rewards=body.rewards,
        reward=body.reward,
        revision=body.revision,
    )


def reward_assigned(
    body: AssignReward, who: Identity, headers: ClientHeaders, producer: str, at_us: int | None = None
) -> RewardAssigned:
    """A reward for a trajectory, or for one of its calls. at_us: when it was given; None: now."""
    stamped = _envelope(producer, body.run_id, headers, "RewardAssigned", who.group_id, who.trajectory_id)
    return RewardAssigned(
        envelope=stamped if at_us is None else replace(stamped, occurred_at_us=at_us),
        group_id=who.group_id,
        trajectory_id=who.trajectory_id,
        call_id=body.call_id,
        step_index=body.step_index,
        source=body.source,
        name=body.name,
        value=body.value,
        revision=body.revision,
        metadata=_json(body.metadata),
    )


def channel_of(body: OpenGroup | RegisterTrajectory, headers: ClientHeaders) -> str:
    """The body's channel, else the header's, else train."""
    return body.channel or headers.channel or Channel.TRAIN


def run_of(body: OpenGroup, headers: ClientHeaders) -> str | None:
    """The body's run, else the header's."""
    return body.run_id or headers.run_id


def group_id_of(body: OpenGroup, headers: ClientHeaders, key: ApiKey | None) -> str:
    """The id in the body, else a new one; the same request under the same idempotency key gets the same id.

    Raises Forbidden for an id that the API key does not own.
    """
    require_own(key, group_id=body.group_id)
    same = headers.idempotency_key
    return body.group_id or own_id(key, decision_id("group", same, body.model_dump_json()) if same else new_id())


def _envelope(producer: str, run_id: str | None, headers: ClientHeaders, *subject: str) -> Envelope:
    # A request repeated under its idempotency key is the same fact, so it has the same event id.
    key = headers.idempotency_key
    return envelope(
        producer,
        event_id=decision_id(*subject, key) if key else None,
        run_id=run_id or headers.run_id,
        traceparent=headers.traceparent,
        key_name=headers.key_name,
    )


def _json(value: Any) -> str | None:  # any JSON value
    return None if value is None else orjson.dumps(value).decode()
