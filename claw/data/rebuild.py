"""`claw rebuild`: the facts into the next generation of the pool, up to offsets. Killed and
started again it goes on."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import orjson

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.data.settings import RebuildSettings
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import Progress
from claw_r1.eventlog.errors import AccessRefused
from claw_r1.eventlog.kafka.admin import as_on_broker, end_offsets, offsets_at
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import FACTS
from claw_r1.streams.rebuild import Rebuilt, rebuild


def run_rebuild(request: RebuildSettings) -> Answer:
    """Rebuilds. Raises StreamsError: retention cut the facts, or the generation cannot be taken there."""
    with log_for_reading(request.prefix) as settings:
        done, seconds = _rebuild(as_on_broker(settings), request)
    manifest, facts = done.manifest(), dict(done.outcomes)
    if request.manifest is not None:
        request.manifest.write_bytes(orjson.dumps(manifest, option=orjson.OPT_APPEND_NEWLINE))
    answer = {"manifest": manifest, "facts": facts, "rows": done.rows, "seconds": round(seconds, 3)}
    return Answer(answer, as_text(done, seconds))


def _rebuild(settings: LogSettings, request: RebuildSettings) -> tuple[Rebuilt, float]:
    generation = request.generation or settings.generation + 1
    if generation == settings.generation:
        raise CannotRun(f"generation {generation} is in use here (CLAW_LOG_GENERATION): a rebuild makes another one")
    target = settings.model_copy(update={"generation": generation})
    started_s = time.monotonic()
    progress = Progress(f"claw rebuild: generation {generation}: {{done}} of {{total}} facts")
    try:
        done = rebuild(target, vector(settings, request.to), progress, request.flush_facts)
    except AccessRefused as refused:
        raise CannotRun(f"{refused}; {lists_of(settings, generation)}") from refused
    return done, time.monotonic() - started_s


def lists_of(settings: LogSettings, generation: int) -> str:
    """Returns how the users get the access lists of another generation. Strimzi's operator takes away what
    its KafkaUser does not name: there the lists of the generation in use are written with it."""
    prefix = f"--prefix {settings.prefix}"
    this, other = (f"--generation {each}" for each in (settings.generation, generation))
    return (
        "a generation's topics and ids are its own: "
        f"`claw topics acls {other} {prefix} --apply`, "
        "or for Strimzi's users "
        f"`claw topics manifests --kind KafkaUser {this} {other} {prefix}`, "
        "and apply that"
    )


def vector(settings: LogSettings, to: str) -> dict[Place, int]:
    """`end`, a time or a file of offsets as offsets, now. Raises CannotRun."""
    if to == "end":
        return end_offsets(settings, FACTS)
    if Path(to).is_file():
        return _from_file(Path(to))
    try:
        at = datetime.fromisoformat(to)
    except ValueError:
        raise CannotRun(f"--to takes `end`, a time (ISO 8601, UTC) or a file of offsets, not {to!r}") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return offsets_at(settings, FACTS, int(at.timestamp() * 1000))


def _from_file(path: Path) -> dict[Place, int]:
    """A manifest of a rebuild or of an export, or just its offsets: topic -> one offset, or [start, end], by partition."""
    try:
        written = orjson.loads(path.read_bytes())
        offsets: Mapping[str, list[int | list[int]]] = written.get("offsets", written)
        return {
            (topic, number): int(offset[-1] if isinstance(offset, list) else offset)
            for topic, mine in offsets.items()
            for number, offset in enumerate(mine)
        }
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise CannotRun(f"{path}: no offsets that a rebuild understands: {error}") from error


def as_text(done: Rebuilt, seconds: float) -> str:
    """The result for a person, and how to cut over."""
    read = sum(done.outcomes.values())
    others = ", ".join(f"{count} {name}" for name, count in sorted(done.outcomes.items()) if name != "folded")
    number = done.generation
    return "\n".join(
        [
            f"generation {number} is the pool at these offsets, by fold version {done.fold_version}",
            f"{read} facts read{f' ({others})' if others else ''}, {done.rows} rows written in {seconds:.1f} s",
            f"cut over: stop the streams, then start streams and readers with CLAW_LOG_GENERATION={number}",
        ]
    )
