"""`claw dlq list|show|redrive|dismiss`: records that nobody could read or fold, and their way back once the
cause is mended."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import orjson

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.data.settings import LetterQuery
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.consumers.pool.dead_letters import (
    Letter,
    dismiss,
    letters,
    letters_named,
    pending,
    redrive_letters,
    summary,
    whole,
)
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.json_values import JsonDict

HEX_PER_LINE = 32
NONE = "none: nothing of it waits (`claw dlq list --pending`)"


def run_dlq(action: str, query: LetterQuery, *, prefix: str) -> Iterator[Answer]:
    """Carries out one action; exit code 1 when a letter could not be redriven. Raises CannotRun, LogError."""
    actions = {"list": _list, "show": _show, "redrive": _redrive, "dismiss": _dismiss}
    if action not in actions:
        raise CannotRun(f"claw dlq {action}: the actions are {', '.join(actions)}")
    if action == "show" and not query.ids:
        raise CannotRun("claw dlq show: name letters by PARTITION@OFFSET; `claw dlq list` shows their ids")
    if action in ("redrive", "dismiss") and not (query.ids or query.every):
        raise CannotRun(f"claw dlq {action}: name letters by PARTITION@OFFSET, or all of them by --all")
    if action == "dismiss" and not query.why:
        raise CannotRun("claw dlq dismiss: give the reason for dismissal with --why")
    with log_for_reading(prefix) as settings:
        yield from actions[action](settings, query)


def _list(settings: LogSettings, query: LetterQuery) -> Iterator[Answer]:
    chosen = letters(settings, query.reason, query.source)
    if query.pending:
        chosen = pending(settings, chosen)
    for letter in chosen:
        yield Answer(summary(letter), _line(letter))
    if not chosen:
        narrowed = query.reason or query.source or query.pending
        every = "there are no dead letters: every record could be read and folded"
        notice("no dead letter meets the options; `claw dlq list` shows all" if narrowed else every)


def _line(letter: Letter) -> str:
    source = letter.source
    where = "(unknown)" if source is None else f"{source.topic}[{source.partition}]@{source.offset}"
    time = letter.header("failed_at") or datetime.fromtimestamp(letter.record.timestamp_ms / 1e3, UTC).isoformat()
    return f"{letter.id:<10} {letter.header('reason'):<18} {where:<32} {time}  {letter.header('error')[:80]}{_word(letter)}"


def _word(letter: Letter) -> str:
    return f"  dismissed by {letter.dismissed}" if letter.dismissed else ""


def _show(settings: LogSettings, query: LetterQuery) -> Iterator[Answer]:
    for letter in letters_named(letters(settings), query.ids or ()):
        answer = whole(letter)
        yield Answer(answer, _whole_text(letter, answer))


def _whole_text(letter: Letter, answer: JsonDict) -> str:
    value = letter.record.value
    lines = [_line(letter), f"  key {answer['key']!r}"]
    lines += [f"  header {name}: {text}" for name, text in answer["headers"].items()]
    lines += [f"  value {orjson.dumps(answer['value']).decode()}"]
    lines += ["  no bytes: the value is null"] if value is None else []
    for at in range(0, len(value or b""), HEX_PER_LINE):
        lines.append(f"  {at:08x}  {(value or b'')[at : at + HEX_PER_LINE].hex(' ', 4)}")
    return "\n".join(lines)


def _chosen(settings: LogSettings, query: LetterQuery) -> list[Letter]:
    """The letters by name, dismissed ones too; or all that are not."""
    every = letters(settings, query.reason, query.source)
    return letters_named(every, query.ids) if query.ids else [letter for letter in every if not letter.dismissed]


def _dismiss(settings: LogSettings, query: LetterQuery) -> Iterator[Answer]:
    chosen = pending(settings, _chosen(settings, query))
    names = [letter.id for letter in chosen]
    if not query.dry_run:
        with closing(EventProducer(settings)) as producer:
            dismiss(producer, chosen, query.who or "somebody", query.why or "")
    answer = {"dismissed": [] if query.dry_run else names, "would_dismiss": names if query.dry_run else []}
    yield Answer(answer, f"{'would dismiss' if query.dry_run else 'dismissed'}: {', '.join(names) or NONE}")


def _redrive(settings: LogSettings, query: LetterQuery) -> Iterator[Answer]:
    chosen = _chosen(settings, query)
    if query.dry_run:
        answer = redrive_letters(settings, chosen, None)
    else:
        with closing(EventProducer(settings)) as producer:
            answer = redrive_letters(settings, chosen, producer)
    yield Answer(answer, _answer_text(answer, dry_run=query.dry_run), 1 if answer["refused"] else 0)


def _answer_text(answer: JsonDict, *, dry_run: bool) -> str:
    fresh = answer["would_redrive"] if dry_run else answer["redriven"]
    lines = [f"{'would redrive' if dry_run else 'redriven'}: {', '.join(fresh) or 'none'}"]
    lines += ["`claw dlq list --pending` in some seconds: a copy that fails is a letter"] if answer["redriven"] else []
    lines += [f"redriven before: {', '.join(answer['already'])}"] if answer["already"] else []
    lines += [f"refused {name}: {why}" for name, why in answer["refused"].items()]
    return "\n".join(lines)
