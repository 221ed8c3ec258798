"""The operation of the system: processes, topics, dead letters and their way back."""

from collections import Counter
from contextlib import closing
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from claw_r1.consumers.dashboard.processes import GATEWAYS, ProcessWatch, other_rows, reader_rows
from claw_r1.consumers.dashboard.routes.parameters import Source
from claw_r1.consumers.dashboard.routes.parts.record import checked_place, json_value, stored_record
from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.pool.dead_letters import Letter, letters, letters_named, pending, redrive_letters, summary, whole
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Operating, Watching
from claw_r1.eventlog.kafka.admin import end_offsets, topic_sizes
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import DEAD_LETTERS

FRESH_S = 2.0
LETTERS_FRESH_S = 5.0
"""All letters are read for one answer, and where their copies would stand."""
WAITING_FRESH_S = 30.0
"""The number of those that wait is asked for all the time; a redrive elsewhere changes it, too."""
WORKERS_MAX = 500
LETTERS_READ_MAX = 20_000
"""Dead letters that are read for a page: beyond that, `claw dlq` is quicker than waiting."""
HEX_MAX = 8192
LetterId = Annotated[str, Field(pattern=r"^\d{1,9}@\d{1,18}$")]
routes = APIRouter(prefix="/api/v1/operations", tags=["operations"])


async def _processes(request: Request) -> ProcessWatch:
    watch: ProcessWatch = request.app.state.processes
    return watch


Watched = Annotated[ProcessWatch, Depends(_processes)]


class RedriveBody(BaseModel):
    """POST /operations/redrive"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[tuple[LetterId, ...], Field(min_length=1, max_length=500)]
    dry_run: bool = True
    """Say what would be appended, and append nothing."""


@routes.get("/processes", summary="All processes: state, version, rate, lag over time, and when it will be caught up.")
def processes(source: Source, watch: Watched, _: Watching) -> Response:
    """`places`: a reader's progress in each partition. `letters`: dead letters that wait; null: too many to count.

    A log in memory has no readers to query."""
    settings = source.log.settings

    def answer() -> JsonDict:
        on_broker = isinstance(source.log, KafkaLog)
        readers, _written = reader_rows(settings) if on_broker else ([], 0)
        gateways = {"name": GATEWAYS, "kind": "gateway", "state": "writing calls", "why": "known by what they wrote"}
        moment = now_us()
        own = "caught up" if source.has_read_all else "still reading"
        page = {"name": "this page", "kind": "dashboard", "state": own, "version": f"generation {settings.generation}"}
        others = source.ask_runs(lambda state: list(other_rows(state, moment)))
        rows = [each | watch.tell(each["name"]) for each in (gateways, *readers)]
        if not rows[0]["rate_per_s"]:
            rows[0]["state"] = "no call lately" if rows[0]["curve"] else "not known yet"
        return {"processes": [*rows, *others[:WORKERS_MAX], page], "letters": letters_waiting(source)}

    return SafeJson(source.kept.answer("operations/processes", answer, LETTERS_FRESH_S))


@routes.get("/topics", summary="Topics of the catalogue with partitions, policy and offsets.")
def topics(source: Source, _: Watching) -> Response:
    """`records`: offsets in use, an upper bound."""
    settings = _on_kafka(source)
    return SafeJson(source.kept.answer("operations/topics", lambda: _topics(settings), FRESH_S))


@routes.get("/letters", summary="Dead letters, the newest first; by default those that were not redriven.")
def dead_letters(
    source: Source,
    _: Watching,
    all: Annotated[bool, Query(description="those that were redriven, too")] = False,  # noqa: A002  # a query's name
    reason: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """Returns the JSON of `claw dlq list --json`, with counts by reason."""
    settings = _on_kafka(source)

    def answer() -> JsonDict:
        every = _letters(settings)
        waiting = every if all else pending(settings, every)
        chosen = [letter for letter in waiting if reason in (None, letter.header("reason"))]
        chosen.sort(key=lambda letter: letter.record.timestamp_ms, reverse=True)
        rows = [summary(letter) for letter in chosen[offset : offset + limit]]
        reasons = Counter(letter.header("reason") for letter in waiting)
        return {"letters": rows, "total": len(chosen), "all": len(every), "reasons": dict(reasons.most_common(50))}

    question = ("operations/letters", all, reason, limit, offset)
    return SafeJson(source.kept.answer(question, answer, LETTERS_FRESH_S))


@routes.get("/letter", summary="One dead letter whole: headers, value, bytes.")
def letter(source: Source, _: Watching, id: Annotated[LetterId, Query()]) -> Response:  # noqa: A002  # a query's name
    """The first bytes of a long one. `problem`: why there is no `value`."""
    partition, offset = map(int, id.split("@"))
    topic = source.log.settings.catalogue().name(DEAD_LETTERS)
    content = whole(Letter(stored_record(source, checked_place(source, Position(topic, partition, offset)))))
    value = json_value(content["value"], None)
    return SafeJson({**content, **value, "hex": (content["hex"] or "")[: 2 * HEX_MAX]})


@routes.post("/redrive", summary="Append dead letters to their fact topic again, each once; first as a dry run.")
def redrive(source: Source, _: Operating, body: RedriveBody) -> Response:
    """Returns which letters were redriven now, which before, and why the others cannot be."""
    settings = _on_kafka(source)
    chosen = letters_named(_letters(settings), body.ids)
    if body.dry_run:
        return SafeJson(redrive_letters(settings, chosen, None))
    with closing(source.log.producer()) as producer:
        answer = redrive_letters(settings, chosen, producer)
    source.kept.forget()  # the letters that were waiting
    return SafeJson(answer)


def _on_kafka(source: DashboardSource) -> LogSettings:
    if not isinstance(source.log, KafkaLog):
        raise PageProblem(501, "this dashboard reads a log in memory, which has no broker that could be asked")
    return source.log.settings


def letters_waiting(source: DashboardSource) -> int | None:
    """Returns how many dead letters wait; None: they are too many to count. Raises LogError."""
    if not isinstance(source.log, KafkaLog):
        return 0
    settings = source.log.settings
    written = sum(end_offsets(settings, [DEAD_LETTERS]).values())
    if not 0 < written <= LETTERS_READ_MAX:
        return None if written else 0

    def answer() -> JsonDict:
        return {"waiting": len(pending(settings, letters(settings)))}

    waiting: int = source.kept.answer(("letters", written), answer, WAITING_FRESH_S)["waiting"]
    return waiting


def _letters(settings: LogSettings) -> list[Letter]:
    """All of them. Raises PageProblem where they are too many for a page."""
    if sum(end_offsets(settings, [DEAD_LETTERS]).values()) > LETTERS_READ_MAX:
        raise PageProblem(422, "there are too many dead letters for a page: `claw dlq list --reason R` narrows them")
    return letters(settings)


def _topics(settings: LogSettings) -> JsonDict:
    about = {settings.catalogue().name(topic): topic for topic in settings.catalogue()}
    sizes = topic_sizes(settings)
    return {
        "topics": [
            {
                "topic": size.name,
                "policy": about[size.name].policy,
                "doc": about[size.name].doc,
                "partitions": size.partitions,
                "replication": size.replication,
                "records": size.records,
                "offsets": [[size.begin_offsets[at], end] for at, end in size.end_offsets.items()],
            }
            for size in sizes
        ],
        "missing": sorted(about.keys() - {size.name for size in sizes}),
    }
