"""`claw upgrade`: whether this version goes on where another one stands, by
what each says of itself."""

import json
from collections.abc import Iterator
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from claw_r1.agentflow.settings import AgentFlowSettings, FlowSettings
from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.show.doctor.access import LISTS
from claw_r1.consumers.quality.settings import QualitySettings
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.grants import ROLES, grants
from claw_r1.eventlog.settings import LogSettings
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.rollout.rewards.settings import RewardServerSettings
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.schemas.avro_files import (
    fingerprint,
    schema_ids,
    written_schema,
)
from claw_r1.schemas.codec import decode
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import TOPICS, Catalogue
from claw_r1.streams.settings import StreamsSettings
from claw_r1.trainer.settings import TrainerSettings

SETTINGS = (
    GatewaySettings,
    StreamsSettings,
    TrainerSettings,
    RolloutSettings,
    RewardsSettings,
    RewardServerSettings,
    QualitySettings,
    FlowSettings,
    AgentFlowSettings,
    LogSettings,
)
"""All but the dashboard's, which nobody imports."""
PARTS = {"package": str, "fold": int, "schemas": dict, "golden": dict, "topics": dict, "settings": dict}
RELEASES = Path(__file__).with_name("releases")
"""The records of released versions, by their numbers."""
EXAMPLES = Path(str(files("claw_r1.schemas"))) / "examples"
ORDER = ("streams", "rewards", "quality", "dashboard", "trainer", "rollout", "gateway")
"""Readers of calls before those who write them. No one order does for all topics: a worker's reports, which the gateway reads, go
the other way."""


def record() -> JsonDict:
    """Returns what this version is; kept by whoever upgrades from it."""
    ids = {each: written_schema(each) for each in schema_ids()}
    return {
        "package": metadata.version("claw-r1"),
        "fold": FOLD_VERSION,
        "schemas": {
            str(each): [schema_ids()[each]["name"], fingerprint(schema)]
            for each, schema in ids.items()
            if schema is not None
        },
        "golden": dict(_golden()),
        "topics": {each.name: each.settings() for each in TOPICS},
        "settings": dict(_defaults()),
        "grants": {role: [str(grant) for grant in grants(Catalogue(), role)] for role in ROLES},
    }


def record_answer() -> Answer:
    """The record, for a later check."""
    own = record()
    return Answer(own, json.dumps(own, indent=1))


def check(before: Path) -> Answer:
    """Compares that version with this one; exit code 1 where a record of its could not be read, or a setting
    of its is gone. Raises CannotRun for a file that `claw upgrade` did not print. before: the number of a
    release stands for what it printed."""
    old, now = _read(before), record()
    rows = [*compare(old, now)]
    bad = any(row["severity"] == "error" for row in rows)
    answer = {"ok": not bad, "findings": rows, "order": ORDER, "restart": restart(old["schemas"], now["schemas"])}
    return Answer(answer, [*_lines(old, now, rows, bad)], int(bad))


def _lines(old: Any, now: Any, rows: list[dict[str, str]], bad: bool) -> Iterator[str]:
    yield f"{old['package']} -> {now['package']}"
    for row in rows:
        yield f"{row['severity']:<8} {row['says']}"
    if not bad:
        yield restart(old["schemas"], now["schemas"])


def restart(old: Any, now: Any) -> str:  # Any: id -> name, fingerprint
    """Returns how to restart so that nobody reads what it does not know: where an event has a new schema, all write by the former one
    until all are new; a new event has none, so that its writers are the last."""
    names = {name for name, _ in old.values()}
    fresh = {now[each][0] for each in now.keys() - old.keys()}
    order = ", ".join(ORDER)
    for name in sorted(fresh - names):
        order += f"; those who write {_short(name)} last ({', '.join(_writers(name))})"
    if not fresh & names:
        return f"restart one after another: {order}"
    until = f"CLAW_SCHEMAS_UNTIL={max(old, key=int)}"
    return f"restart with {until} one after another: {order}; when all are new, take it away and restart them once more"


def _read(before: Path) -> Any:  # JSON of `record`
    released = RELEASES / f"{before}.json"
    before = released if released.exists() else before
    try:
        old = json.loads(before.read_text())
    except (OSError, ValueError) as error:
        raise CannotRun(f"{before}: cannot be read ({error})") from error
    if not _is_record(old):
        raise CannotRun(f"{before}: not what `claw upgrade` prints")
    return old


def _is_record(old: object) -> bool:
    if not isinstance(old, dict) or not isinstance(old.get("grants", {}), dict):
        return False
    return all(isinstance(old.get(part), kind) for part, kind in PARTS.items())


def compare(old: Any, now: Any) -> Iterator[dict[str, str]]:  # Any: JSON of `record`
    """Yields what differs."""
    yield from _schemas(old["schemas"], now["schemas"])
    for name, digits in old["golden"].items():
        if problem := _unreadable(digits):
            yield _says("error", f"a {name} as it was written then cannot be read: {problem}")
    if old["fold"] != now["fold"]:
        text = "the pool is made again, beside the old one (`claw rebuild`, docs/rebuild.md)"
        yield _says("warning", f"folds {old['fold']} -> {now['fold']}: {text}")
    yield from _topics(old["topics"], now["topics"])
    yield from _lists(old.get("grants"), now["grants"])
    yield from _settings(old["settings"], now["settings"])


def _topics(old: Any, now: Any) -> Iterator[dict[str, str]]:  # Any: name -> settings
    for name in now.keys() - old.keys():
        yield _says("warning", f"topic {name} is new: `claw topics create` before anything is restarted")
    for name in old:
        if now.get(name) != old[name]:
            yield _says("warning", f"topic {name} has other settings, or went: `claw topics diff`")


def _lists(old: Any, now: Any) -> Iterator[dict[str, str]]:  # Any: role -> grants
    """Yields what a Kafka with access lists needs first: each room asks for its rights as it starts, and ends
    without them. old: None of a version that did not tell them, as 0.1.0."""
    wider = sorted(role for role in now if old is None or set(now[role]) - set(old.get(role, ())))
    if wider:
        who = "not told by that version" if old is None else f"more for {', '.join(wider)}"
        yield _says("warning", f"access lists, where Kafka has some: {who}; before anything is restarted {LISTS}")


def _schemas(old: Any, now: Any) -> Iterator[dict[str, str]]:  # Any: id -> name, fingerprint
    for each, (name, digest) in old.items():
        if now.get(each, ("", ""))[1] != digest:
            yield _says("error", f"schema {each} ({name}) is not here as it was: its records could not be read")
    for each in sorted(now.keys() - old.keys()):
        name = now[each][0]
        order = f"first its readers ({', '.join(_readers(name))}), then its writers ({', '.join(_writers(name))})"
        if any(name == former for former, _ in old.values()):
            until = f"CLAW_SCHEMAS_UNTIL={max(old, key=int)}"
            order += f"; in any order, and with a way back, with {until} in the new processes, until all are new"
        else:
            order += "; it has no former schema, by which CLAW_SCHEMAS_UNTIL would have it written"
        yield _says("warning", f"schema {each} ({_short(name)}) is new: {order}")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _readers(name: str) -> list[str]:
    topics = [topic for topic in TOPICS if _short(name) in topic.records]
    return sorted({who.partition(" (")[0] for topic in topics for who in topic.readers})


def _writers(name: str) -> list[str]:
    return sorted({who for topic in TOPICS if _short(name) in topic.records for who in topic.writers})


def _settings(old: Any, now: Any) -> Iterator[dict[str, str]]:  # Any: variable -> default
    for name, default in old.items():
        if name not in now:
            yield _says("error", f"{name} is no setting any more")
        elif now[name] != default:
            yield _says("warning", f"{name}: not set, it was {default} and is {now[name]}")


def _golden() -> Iterator[tuple[str, str]]:
    """Event's name -> the bytes of an example, in hexadecimal digits."""
    for path in sorted(EXAMPLES.glob("*.json")):
        yield path.stem, "".join(json.loads(path.read_text())["bytes"])


def _unreadable(digits: str) -> str:
    """Returns why these bytes are no event; empty: they are one."""
    try:
        decode(bytes.fromhex(digits))
    except (UndecodableRecord, ValueError) as error:
        return str(error)
    return ""


def _defaults() -> Iterator[tuple[str, str]]:
    """Variable -> what a room takes where it is not set."""
    for each in SETTINGS:
        stem = each.model_config.get("env_prefix", "")
        for name, field in each.model_fields.items():
            own = field.default_factory is not None
            default = "each start's own" if own else repr(field.default)
            yield f"{stem}{name}".upper(), default


def _says(severity: str, says: str) -> dict[str, str]:
    return {"severity": severity, "says": says}
