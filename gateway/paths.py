"""The identity that a request's path names: `/{trajectory_id}/{group_id}[/v1]/<endpoint>`.

Invariant: ids are taken from the raw path, so an encoded slash belongs to the id. Without a group id the group is the
trajectory's own. Who makes a model call is known by more than its path: `gateway/callers/`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from claw_r1.gateway.call_protocol import CallProtocol
from claw_r1.gateway.errors import InvalidRequest, NotFound
from claw_r1.gateway.protocols import PROTOCOLS, Protocols
from claw_r1.schemas.envelopes import new_id
from claw_r1.schemas.http import ID_CHARACTERS_MAX

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LANE = "lane-"
"""The beginning of an id that the gateway makes up for a call that came without any."""
MODELS = "models"
COUNT_TOKENS = "messages/count_tokens"
SUBMIT_STEPS = "submit_steps"
HELLO = "api/hello"
REPLIED = "calls"
REWARDS = "rewards"
COMPLETE = "complete_trajectory"
FEEDBACK = "feedback"
REGISTRY_PATH = "/registry"
"""In front of the paths of a schema registry."""
CALL_ROUTES = ", ".join(f"POST /{{trajectory_id}}/{{group_id}}/v1/{end}" for end, _ in PROTOCOLS)
SERVED = (
    f"this gateway serves {CALL_ROUTES}, POST …/v1/messages/count_tokens, GET …/v1/models[/{{id}}], GET …/v1/calls, "
    "POST …/v1/register_trajectory, …/v1/rewards, …/v1/feedback, …/v1/complete_trajectory, …/v1/submit_steps, "
    "POST /init_trajectory, POST /groups, and POST /groups/{group_id}/preferences"
)
UNSERVED = ("/embeddings",)
"""The routes of OpenAI's API that SDKs request and we do not serve."""
OWN_ENDPOINTS = (REPLIED, "register_trajectory", COMPLETE, REWARDS, FEEDBACK, SUBMIT_STEPS)
"""Control routes about the trajectory that their path names."""
ANYWHERE = (MODELS, COUNT_TOKENS, HELLO)
"""Control routes that any base URL has."""
MODEL = re.compile(rb"(?P<prefix>(?:/[^/]*){0,2}?/v1|(?:/[^/]*){0,2}?)/models/(?P<model>.+)")


class Identity(NamedTuple):
    """A trajectory. `named` is false for a lane that the gateway made up, and nobody can name again."""

    group_id: str
    trajectory_id: str
    named: bool = True


class Route(NamedTuple):
    """An endpoint, and the trajectory that its path names."""

    endpoint: str
    """The endpoint as in the tables; of a single model with its id, as it was sent: `models/<id>`."""
    identity: Identity | None
    protocol: CallProtocol | None = None
    """The protocol of a model call; None for a control route."""
    lone: bool = False
    """The path has one id: of a trajectory, or of a scope of sessions (`gateway/callers/`)."""

    @property
    def needs_identity(self) -> bool:
        return self.endpoint in OWN_ENDPOINTS


@lru_cache(maxsize=1024)  # the calls of a trajectory come one after the other
def resolve(raw_path: bytes, protocols: Protocols = PROTOCOLS) -> Route | None:
    """Route of an undecoded path; None when it is none of the endpoints. Raises InvalidRequest for a bad id.

    `/{trajectory_id}/v1/…` names a trajectory without a group, so the short form without `/v1` cannot name a group `v1`.
    """
    for endpoint, protocol in (*protocols, *((endpoint, None) for endpoint in (*ANYWHERE, *OWN_ENDPOINTS))):
        suffix = path_end(endpoint)
        if raw_path.endswith(suffix):
            return _route(endpoint, protocol, raw_path[: -len(suffix)])
    one = MODEL.fullmatch(raw_path)
    return _route(f"{MODELS}/{one['model'].decode('ascii')}", None, one["prefix"]) if one else None


def protocol_of(raw_path: bytes, protocols: Protocols = PROTOCOLS) -> CallProtocol | None:
    """The protocol of a model call by the end of its path, whatever its ids."""
    return next((protocol for endpoint, protocol in protocols if raw_path.endswith(path_end(endpoint))), None)


def path_end(endpoint: str) -> bytes:
    """Returns the end of an endpoint's path."""
    return b"/" + endpoint.encode()


def _route(endpoint: str, protocol: CallProtocol | None, prefix: bytes) -> Route | None:
    ids = prefix.split(b"/")[1:]
    if ids and ids[-1] == b"v1":
        ids.pop()
    if not ids:
        return Route(endpoint, None, protocol)
    if len(ids) > 2:
        return None
    trajectory_id = quoted_id(ids[0], "trajectory_id")
    group_id = quoted_id(ids[1], "group_id") if len(ids) == 2 else trajectory_id
    return Route(endpoint, Identity(group_id, trajectory_id), protocol, lone=len(ids) == 1)


def names_preferences(path: str) -> bool:
    """Returns whether a decoded path is that of a group's preferences."""
    return path.removeprefix("/v1").startswith("/groups/") and path.rstrip("/").endswith("/preferences")


def not_served(raw_path: bytes) -> NotFound | None:
    """The refusal of a request for another API than ours; None when it may be ours."""
    path = raw_path.decode("latin-1")
    other = next((end for end in UNSERVED if path.endswith(end)), None)
    return NotFound(f"/v1{other} is not served here: {SERVED}", code="not_served") if other else None


def fresh_lane(own_id: Callable[[str], str], keyed: str | None) -> Identity:
    """Identity of a call that came without any. own_id: makes of an id one that its API key owns. keyed: a function of its
    idempotency key, where it has one."""
    lane = own_id(f"{LANE}{keyed or new_id()}")
    return Identity(lane, lane, named=keyed is not None)


def checked_id(value: str, param: str) -> str:
    """The id itself. Raises InvalidRequest unless it has 1..512 characters, none of them control characters."""
    if not 1 <= len(value) <= ID_CHARACTERS_MAX:
        raise InvalidRequest(f"{param} must have 1 to {ID_CHARACTERS_MAX} characters", param=param)
    if CONTROL.search(value):
        raise InvalidRequest(f"{param} must hold no control characters", param=param)
    try:
        value.encode()
    except UnicodeEncodeError as surrogate:
        raise InvalidRequest(f"{param} must be Unicode text without lone surrogates", param=param) from surrogate
    return value


def quoted_id(raw: bytes, param: str) -> str:
    """The id in percent-encoded UTF-8. Raises InvalidRequest as `checked_id`, and for other bytes."""
    try:
        return checked_id(unquote_to_bytes(raw).decode(), param)
    except UnicodeDecodeError as broken:
        raise InvalidRequest(f"{param} must be percent-encoded UTF-8", param=param) from broken
