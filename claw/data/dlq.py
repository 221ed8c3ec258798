"""`claw dlq list|show|redrive`: records that nobody could read or fold, and their way back once the cause is mended."""

from datetime import UTC, datetime
from typing import Any

import orjson
from msgspec.structs import asdict

from claw.data.dead_letters import Letter, letters, letters_named, redrive, redriven, routes_of
from claw.data.settings import LetterQuery
from claw.errors import CannotRun
from claw.show.log import log_for_reading
from claw.show.notice import notice
from claw.show.rendering import as_plain
from eventlog.settings import LogSettings
from schemas.errors import UndecodableRecord

HEX_PER_LINE = 32
Json = dict[str, Any]  # what JSON can hold


def run_dlq(action: str, query: LetterQuery, *, prefix: str, as_json: bool) -> int:
    """Carries out one action; exit code 1 when a letter could not be redriven. Raises CannotRun, LogError."""
    actions = {"list": _list, "show": _show, "redrive": _redrive}
    if action not in actions:
        raise CannotRun(f"claw dlq {action}: the actions are {', '.join(actions)}")
    if action == "show" and not query.ids:
        raise CannotRun("claw dlq show: name letters by PARTITION@OFFSET; `claw dlq list` shows their ids")
    if action == "redrive" and not (query.ids or query.every):
        raise CannotRun("claw dlq redrive: name letters by PARTITION@OFFSET, or all of them by --all")
    with log_for_reading(prefix) as settings:
        return actions[action](settings, query, as_json)


def _list(settings: LogSettings, query: LetterQuery, as_json: bool) -> int:
    chosen = letters(settings, query.reason, query.source)
    if query.pending:
        routes, _ = routes_of(settings, chosen)
        copied = redriven(settings, routes)
        chosen = [letter for letter in chosen if letter.id not in copied]
    for letter in chosen:
        print(orjson.dumps(summary(letter)).decode() if as_json else _line(letter))
    if not chosen:
        narrowed = query.reason or query.source or query.pending
        every = "there are no dead letters: every record could be read and folded"
        notice("no dead letter meets the options; `claw dlq list` shows all" if narrowed else every)
    return 0


def summary(letter: Letter) -> Json:
    """A letter without its bytes."""
    source = letter.source
    return {
        "id": letter.id,
        "reason": letter.header("reason"),
        "error": letter.header("error"),
        "reader": letter.header("reader"),
        "source": source and asdict(source),
        "key": None if letter.record.key is None else letter.record.key.decode("utf-8", "replace"),
        "failed_at": letter.header("failed_at"),
        "attempt": letter.header("attempt"),
        "bytes": len(letter.record.value or b""),
    }


def _line(letter: Letter) -> str:
    source = letter.source
    where = "(unknown)" if source is None else f"{source.topic}[{source.partition}]@{source.offset}"
    time = letter.header("failed_at") or datetime.fromtimestamp(letter.record.timestamp_ms / 1e3, UTC).isoformat()
    return f"{letter.id:<10} {letter.header('reason'):<18} {where:<32} {time}  {letter.header('error')[:80]}"


def _show(settings: LogSettings, query: LetterQuery, as_json: bool) -> int:
    for letter in letters_named(letters(settings), query.ids or ()):
        whole = {
            **summary(letter),
            "headers": dict(letter.headers),
            "value": attempt(letter),
            "hex": None if letter.record.value is None else letter.record.value.hex(),
        }
        print(orjson.dumps(whole).decode() if as_json else _whole_text(letter, whole))
    return 0


def attempt(letter: Letter) -> Json:
    """The value decoded as an event, or why that cannot be done."""
    try:
        return as_plain(letter.record.event())
    except UndecodableRecord as broken:
        return {"undecodable": broken.reason, "error": str(broken)}


def _whole_text(letter: Letter, whole: Json) -> str:
    value = letter.record.value
    lines = [_line(letter), f"  key {whole['key']!r}"]
    lines += [f"  header {name}: {text}" for name, text in whole["headers"].items()]
    lines += [f"  value {orjson.dumps(whole['value']).decode()}"]
    lines += ["  no bytes: the value is null"] if value is None else []
    for at in range(0, len(value or b""), HEX_PER_LINE):
        lines.append(f"  {at:08x}  {(value or b'')[at : at + HEX_PER_LINE].hex(' ', 4)}")
    return "\n".join(lines)


def _redrive(settings: LogSettings, query: LetterQuery, as_json: bool) -> int:
    chosen = letters(settings, query.reason, query.source)
    routes, refused = routes_of(settings, letters_named(chosen, query.ids) if query.ids else chosen)
    done = redriven(settings, routes) if routes else set()
    fresh = [route for route in routes if route.letter.id not in done]
    if not query.dry_run:
        redrive(settings, fresh)
    answer = {
        "redriven": [] if query.dry_run else [route.letter.id for route in fresh],
        "would_redrive": [route.letter.id for route in fresh] if query.dry_run else [],
        "already": sorted(done),
        "refused": refused,
    }
    print(orjson.dumps(answer).decode() if as_json else _answer_text(answer, dry_run=query.dry_run))
    return 1 if refused else 0


def _answer_text(answer: Json, *, dry_run: bool) -> str:
    fresh = answer["would_redrive"] if dry_run else answer["redriven"]
    lines = [f"{'would redrive' if dry_run else 'redriven'}: {', '.join(fresh) or 'none'}"]
    lines += [f"redriven before: {', '.join(answer['already'])}"] if answer["already"] else []
    lines += [f"refused {name}: {why}" for name, why in answer["refused"].items()]
    return "\n".join(lines)
