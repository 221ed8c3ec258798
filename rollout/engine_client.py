"""vLLM's control routes as methods, each with its own deadline. HTTP becomes this room's errors
here and nowhere else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from claw_r1.rollout.errors import EngineLost
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.schemas.http import CONTROL_HEADER

EngineFields = Mapping[str, object]
FIRST = -(1 << 30)
"""A priority before any that an agent would choose; vLLM takes the lowest first."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The reply of /claw/info (`claw_r1.rollout.plugin.handover`)."""

    capabilities: tuple[str, ...]
    in_flight: int
    seconds: Mapping[str, float]
    kv_usage: float | None
    control_requests: tuple[str, ...]
    """The requests of people to this worker; nobody is told twice."""


class EngineClient:
    """The engine behind one server, as long as that server's secret holds."""

    def __init__(self, http: aiohttp.ClientSession, url: str, secret: str, settings: RolloutSettings) -> None:
        self._http = http
        self._url = url
        self._headers = {CONTROL_HEADER: secret}
        self._timeout_s = settings.control_timeout_s
        self._health_timeout_s = settings.health_timeout_s
        self._load_timeout_s = settings.load_timeout_s
        self._probe_timeout_s = settings.probe_timeout_s
        self._model = settings.served_name

    async def is_healthy(self) -> bool:
        """False also when nobody answers."""
        try:
            status, _ = await self._request("GET", "/health", self._health_timeout_s)
        except (aiohttp.ClientError, TimeoutError):
            return False
        return status == 200

    async def info(self) -> EngineInfo:
        """Capabilities and load; from the engine itself, so that a reply shows that it lives. During an update there is none.

        Raises EngineLost, also when our plugin is not in that server.
        """
        body = await self._must("GET", "/claw/info", timeout_s=self._health_timeout_s)
        try:
            return msgspec.convert({name: body[name] for name in EngineInfo.__slots__}, EngineInfo)
        except (KeyError, msgspec.ValidationError) as error:
            raise EngineLost(f"/claw/info is not ours: {body}") from error

    async def pause(self) -> None:
        """Freeze running replies between two steps; their caches are computed again with the next weights."""
        await self._must("POST", "/pause?mode=keep&clear_cache=true")

    async def start(self) -> None:
        """Open an update; only after `pause`."""
        await self._must("POST", "/start_weight_update")

    async def update(self, update_info: EngineFields) -> None:
        """Load what lies in this host's memory."""
        await self._must("POST", "/update_weights", {"update_info": update_info}, self._load_timeout_s)

    async def finish(self, label: str) -> None:
        """Close the update and, while still paused, set the label."""
        await self._must("POST", "/finish_weight_update", {"weight_version": label})

    async def resume(self) -> None:
        """Let frozen and waiting requests go on."""
        await self._must("POST", "/resume")

    async def set_label(self, label: str) -> None:
        """Name the weights that are loaded; only while no reply runs, or the label moves in the middle of one."""
        await self._must("POST", "/update_weight_version", {"new_version": label})

    async def prompt_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Returns the log-probability of each id but the first, at temperature 1, before whatever waits. Raises
        EngineLost, and TimeoutError for no slot."""
        path, body = "/v1/completions", {"model": self._model, "prompt": list(ids), "prompt_logprobs": 0}
        body |= {"max_tokens": 1, "temperature": 1, "priority": FIRST}
        try:
            status, answer = await self._request("POST", path, self._probe_timeout_s, body)
            entries = answer["choices"][0]["prompt_logprobs"][1:]  # type: ignore[index]  # JSON
            return [float(entry[str(token)]["logprob"]) for token, entry in zip(ids[1:], entries, strict=True)]
        except TimeoutError:
            raise
        except aiohttp.ClientError as error:
            raise EngineLost(f"{path}: {error!r}") from error
        except (LookupError, TypeError, ValueError) as error:
            raise EngineLost(f"{path}: {status} {str(answer)[:300]}") from error

    async def _must(
        self, method: str, path: str, body: EngineFields | None = None, timeout_s: float | None = None
    ) -> EngineFields:
        try:
            status, answer = await self._request(method, path, timeout_s or self._timeout_s, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineLost(f"{path}: {error!r}") from error
        if status != 200 or not isinstance(answer, dict):
            raise EngineLost(f"{path}: {status} {answer}")
        return answer

    async def _request(
        self, method: str, path: str, timeout_s: float, body: EngineFields | None = None
    ) -> tuple[int, object]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        call = self._http.request(method, self._url + path, json=body, headers=self._headers, timeout=timeout)
        async with call as reply:
            is_json = reply.content_type == "application/json"
            return reply.status, await (reply.json() if is_json else reply.text())
