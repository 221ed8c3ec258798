"""Words that rooms share over HTTP: headers, the version spans of a reply, the label of a policy version, channels.

Invariant: these words are written here and nowhere else, and this module imports nothing that a process which speaks HTTP has not loaded.
"""

import socket
from functools import lru_cache
from typing import Final

AGENT_HEADER = "x-claw-agent"
"""Request: name of the agent that calls."""
CHANNEL_HEADER = "x-claw-channel"
"""Request: the channel of the call, see `Channel`."""
RUN_ID_HEADER = "x-claw-run-id"
"""Request: the training run that the call belongs to."""
TAGS_HEADER = "x-claw-tags"
"""Request: tags of the call, separated by commas."""
IDEMPOTENCY_KEY_HEADER = "x-claw-idempotency-key"
"""Request: the same for every attempt of one request; `Idempotency-Key` is accepted as well."""
RETRY_COUNT_HEADER = "x-claw-retry-count"
"""Request: how many attempts of this request came before this one."""
REWARDS_HEADER = "x-claw-rewards"
"""Request: rewards of the trajectory that a call or a completion takes along, as a JSON list of
bodies of `…/rewards`."""
ID_CHARACTERS_MAX = 512
"""The longest id, name or tag in a request."""
TAGS_MAX = 32
"""The most tags that one request gives a group, a trajectory or a call."""
RIDING_MAX = 64
"""The most rewards that one request takes along."""

GROUP_HEADER = "x-claw-group"
"""Request and reply: the group in which the call is stored, percent-encoded."""
TRAJECTORY_HEADER = "x-claw-trajectory"
"""Request and reply: the trajectory in which the call is stored, percent-encoded."""
PARENT_HEADER = "x-claw-parent"
"""Request: the trajectory that started this one, percent-encoded."""
KIND_HEADER = "x-claw-kind"
"""Request: what the call is for, a word of `CallKind`."""
CALL_ID_HEADER = "x-claw-call-id"
"""Reply: identity of the captured call."""
POLICY_VERSION_HEADER = "x-claw-policy-version"
"""Reply: the policy versions that sampled it, as `run/version` or `run/first..last`."""
OVERHEAD_MS_HEADER = "x-claw-overhead-ms"
"""Reply: milliseconds that the call spent in the gateway and not in an engine."""

TOKENS_HEADER = "x-claw-tokens"
"""Request to an engine: hand over what was sampled. Its JSON reply: the length of the
member that does, in bytes."""
TOKENS_MEMBER = '"claw_tokens":'
"""The beginning of that member, after its comma; it is the last one of the reply."""
TOKENS_COMMENT = ": claw.tokens="
"""The beginning of the SSE comment that does so in a stream."""
TOKENS_CAPABILITIES = ("tokens_json", "tokens_sse")
"""The capabilities of a worker that does."""
WEIGHTS_HEADER = "x-claw-weights"
"""Reply of a trainer: `whole`, or `patch` where the bytes are what makes the version of the
one that the worker has."""
CONTROL_HEADER = "x-claw-control"
"""Request to an engine's control routes: the secret of its supervisor."""

VERSION_MAX = (1 << 63) - 1

OUTCOME_REWARD = "outcome"
"""Name of a reward that has none in its body, whether it is of a trajectory or of a call."""
STEP_REWARD = "step"
"""Name of a call's reward to which an agent's `Episode` is given no name."""

ORDINAL_TAKEN = "ordinal_taken"
"""Code of the refusal (409) to open a group of an order whose ordinal another request has opened."""

TASK_GROUPS_MAX = 8
"""The latest groups of a task whose returns a gateway tells."""


class Channel:
    """Channels with a meaning of their own; any other word is a channel of the operator's."""

    TRAIN: Final = "train"
    """Trained on; what does not name a channel is on this one."""
    VALIDATION: Final = "val"
    """Evaluation: never trained on."""
    JUDGE: Final = "judge"
    """A scorer's questions to a model: evidence of its verdicts, itself never scored nor trained on."""


class CallKind:
    """The purposes of calls. Other kinds than MAIN stand on their calls as tags, see `kind_tag`."""

    MAIN: Final = "main"
    """A call of the agent, for its task."""
    SIDE: Final = "side"
    """A call of the agent, for itself: a title, a summary."""
    SUBAGENT: Final = "subagent"
    """A call of an agent that another one started."""


def kind_tag(kind: str) -> str:
    """The tag of calls of a kind.

    >>> kind_tag(CallKind.SIDE)
    'kind:side'
    """
    return f"kind:{kind}"


def ordered_group_id(order: str, ordinal: int) -> str:
    """The id of the group with the task of this ordinal: opened again, it is the same group."""
    return f"{order}-{ordinal}"


def order_of(group_id: str, ordinal: int | None) -> str | None:
    """The order that a group is in, the inverse of `ordered_group_id`; None when it is in none."""
    order, dash, number = group_id.rpartition("-")
    return order if dash and order and number == str(ordinal) else None


def url_host(host: str) -> str:
    """The host as a URL has it: an IPv6 address in brackets.

    >>> url_host("fd00::7"), url_host("gpu1.lan")
    ('[fd00::7]', 'gpu1.lan')
    """
    return f"[{host}]" if ":" in host else host


def family_of(host: str) -> socket.AddressFamily:
    """The family of a socket that listens at this host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def adapter_run(run_id: str) -> str:
    """The name under which a trainer offers the adapters of a run's versions, beside the whole ones."""
    return f"{run_id}/adapter"


def version_label(run_id: str, version: int) -> str:
    """The label of a policy version, `<run_id>/<version>`, with which the engine stamps every sampled token."""
    return f"{run_id}/{version}"


BASE_LABEL = version_label("base", 0)
"""The label of the weights that an engine starts from, before it has loaded a published version."""


@lru_cache(maxsize=256)
def parse_version_label(label: str) -> tuple[str, int] | None:
    """(run_id, version) of a label; None when it is anything else, like vLLM's own `default`."""
    run_id, slash, version = label.rpartition("/")
    if not (slash and run_id and version.isascii() and version.isdigit() and len(version) < 20):
        return None
    return (run_id, int(version)) if int(version) <= VERSION_MAX else None
