"""The changes to a client's request before engines get it: by its key, or for everybody by setting.

Invariant: the event keeps the client's body, and names what was changed. A request to which nothing applies is forwarded
as it came; any other is written anew by a parser that keeps its numbers as they are.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from claw_r1.gateway.call_protocol import CallProtocol, CallRequest
from claw_r1.gateway.foreign_json import object_of, objects, rewritten
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.json_values import Json

SIDE = ":side"
"""Behind the model of an alias whose calls are no turns of the agent: titles, commit messages."""


class Rules(NamedTuple):
    """The rules for changing requests."""

    aliases: Mapping[str, str] = {}
    """Name or pattern -> the model, maybe with `SIDE` behind it."""
    sampling: Mapping[str, float] = {}
    strip_strict: bool = False


NONE = Rules()


class Served(NamedTuple):
    """The model that a request gets."""

    name: Json
    is_side: bool = False
    """The call came under an alias of side calls."""


class Adapted(NamedTuple):
    """A body as engines get it."""

    body: bytes
    words: tuple[str, ...] = ()
    """The codes of what differs from the client's request."""
    is_side: bool = False


class Adaptation:
    """The rules of a gateway and of its keys; a key's win over the gateway's."""

    def __init__(self, settings: GatewaySettings, engines: EngineTable) -> None:
        self._engines = engines
        sampling = {str(name): value for name, value in settings.sampling.items()}
        self._common = Rules(settings.aliases, sampling, settings.strip_strict)

    def request(self, protocol: CallProtocol, body: bytes, key: ApiKey | None) -> CallRequest:
        """A client's request, understood as engines get it. Raises InvalidRequest."""
        adapted, words, is_side = self.adapt(body, key)
        request = protocol.parse(adapted)
        if is_side:
            request = request._replace(hints=request.hints._replace(is_side=True))
        return request._replace(body=body, adapted=words) if words else request

    def adapt(self, body: bytes, key: ApiKey | None, *, samples: bool = True) -> Adapted:
        """The body as engines get it. Raises InvalidRequest.

        samples: whether something is sampled by it. A body that is no JSON object stays as it is, for its protocol to refuse.
        """
        rules = self.rules(key)
        fields = object_of(body) if rules != NONE else None
        if fields is None:
            return Adapted(body)
        (model, is_side), changes = self.served(fields.get("model"), rules), {}
        if model != fields.get("model"):
            changes["model"] = model
        strict = rules.strip_strict and _is_strict(fields.get("tools"))
        sampling = {name: value for name, value in rules.sampling.items() if samples and fields.get(name) != value}
        words = [word for word, holds in (("model", changes), ("strict", strict), ("sampling", sampling)) if holds]
        changes |= {name: int(value) if float(value).is_integer() else value for name, value in sampling.items()}

        def change(fields: dict[str, Json]) -> None:
            fields.update(changes)
            for holder in _holders(fields["tools"]) if strict else ():
                holder.pop("strict", None)

        return Adapted(rewritten(body, change) if words else body, tuple(words), is_side)

    def rules(self, key: ApiKey | None) -> Rules:
        """Returns the rules for requests under this key."""
        common = self._common
        if key is None or not (key.aliases or key.sampling or key.strip_strict):
            return common
        return Rules(
            {**common.aliases, **key.aliases},
            {**common.sampling, **key.sampling},
            common.strip_strict or key.strip_strict,
        )

    def served(self, model: Json, rules: Rules) -> Served:
        """The model that a request for this one gets: itself where a live worker has it, else what its alias names.

        An alias that is the very name goes before patterns, a longer pattern before a shorter one.
        """
        if not (rules.aliases and isinstance(model, str)) or any(
            engine.model == model for engine in self._engines.live()
        ):
            return Served(model)
        patterns = sorted((pattern for pattern in rules.aliases if fnmatchcase(model, pattern)), key=len)
        target = rules.aliases.get(model) or (rules.aliases[patterns[-1]] if patterns else None)
        return Served(model) if target is None else Served(target.removesuffix(SIDE), target.endswith(SIDE))


def _is_strict(tools: Json) -> bool:
    return any(holder.get("strict") for holder in _holders(tools))


def _holders(tools: Json) -> list[dict[str, Json]]:
    """Returns the objects in which `strict` may stand: in a tool, in its function (chat), in the tools of a namespace
    (responses)."""
    listed = objects(tools)
    listed += [inner for tool in listed for inner in objects(tool.get("tools"))]
    return listed + objects([tool.get("function") for tool in listed])
