"""`claw label`: a person's words become events on claw.rewards, by the builders that the gateway and the page use.

Ids are resolved before anything is published, so the events name what was meant, whatever the pool becomes. One command is
one act, by whose id its events are found again; `--undo` takes the last act back of which anything stands.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson
from msgspec.structs import replace

from claw_r1.claw.answers import Answer
from claw_r1.claw.broker_log import log_for_reading
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.label.commands import LabelOptions
from claw_r1.claw.notice import notice, printable
from claw_r1.claw.pool.append import append
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.datapool.feedback import (
    Comparison,
    FeedbackFact,
    FeedbackSubject,
    Remark,
    Signature,
    checked_name,
    feedback_events,
    preference_event,
    undo_events,
)
from claw_r1.datapool.personal_words import Feedback, PersonalWord
from claw_r1.eventlog.kafka.admin import as_on_broker
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import new_id, now_us
from claw_r1.schemas.events import PreferenceOutcome, TrajectoryRecord
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import REWARDS, TRAJECTORIES

PRODUCER = "claw label"
MATCHES_SHOWN = 5


def run_label(name: str, options: LabelOptions, *, who: str | None, dry_run: bool, prefix: str) -> Answer:
    """Says it; exit code 0. Raises CannotRun, InvalidFeedback."""
    outcome, remark, by = _outcome(options), _remark(options), _signature(who)  # what is said before who says it
    with open_pool(prefix, topics=[TRAJECTORIES]) as pool:
        names = [name] if options.prefer is None else [name, options.prefer]
        subject, *others = pool.view.ask(lambda rows: [subject_of(rows.trajectory_rows(), each) for each in names])
        by = replace(by, above=people(pool.settings, subject.group_id).latest_revision(subject, by.source))
        events: list[FeedbackFact] = [] if remark is None else feedback_events(subject, remark, by)
        for other in others:
            comparison = Comparison(
                chosen=other, rejected=subject, outcome=outcome, comment=None if remark else options.comment
            )
            events.append(preference_event(comparison, by))
        return _publish(pool.settings, events, by, dry_run=dry_run)


def run_undo(name: str, options: LabelOptions, *, who: str | None, dry_run: bool, prefix: str) -> Answer:
    """Takes the person's last act on it back; exit code 1 when nothing stands. Raises CannotRun, InvalidFeedback."""
    _alone(options, "--undo")
    by = _signature(who)
    with open_pool(prefix, topics=[TRAJECTORIES]) as pool:
        subject = pool.view.ask(lambda rows: subject_of(rows.trajectory_rows(), name))
        words = people(pool.settings, subject.group_id).last_act(by.source, subject=subject)
        events = undo_events([word.fact for word in words], by)
        return _publish(pool.settings, events, by, dry_run=dry_run)


def run_list(name: str, options: LabelOptions, *, prefix: str) -> Iterator[Answer]:
    """Yields what people said of it, in the order of time; exit code 1 when nobody said anything. Raises CannotRun."""
    _alone(options, "--list")
    with log_for_reading(prefix) as settings:
        words = [word for word in people(settings).history() if any(is_of(side, name) for side in _sides(word))]
    for word in words:
        yield Answer(as_row(word), as_line(word))
    if not words:
        notice(f"nobody has judged {name}")
        yield Answer(code=1)


def people(settings: LogSettings, group_id: str | None = None) -> Feedback:
    """All that people ever said, or of what lies beside one group: a long log has many others' rewards."""
    numbers = None if group_id is None else [partition_of(group_key(group_id), as_on_broker(settings).partitions)]
    with LogReader(settings, [REWARDS], partitions=numbers) as reader:
        return Feedback(readable(reader.read_to_end()))


def subject_of(rows: Iterable[TrajectoryRecord], name: str) -> FeedbackSubject:
    """The trajectory or call that an id names. Raises CannotRun where none or several have it."""
    matches = sorted({subject for row in rows for subject in _matches(row, name)}, key=str)
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise CannotRun(f"the pool has no call or trajectory {name}; a group is judged by its trajectories")
    several = ", ".join(map(str, matches[:MATCHES_SHOWN]))
    raise CannotRun(f"{name} names {len(matches)} subjects: say which, {several}")


def _matches(row: TrajectoryRecord, name: str) -> Iterable[FeedbackSubject]:
    own = FeedbackSubject(row.group_id, row.trajectory_id)
    if name in (row.trajectory_id, str(own)):
        yield own
    for call_id in row.calls:
        call = FeedbackSubject(*own[:2], call_id)
        if name in (call_id, str(call)):
            yield call


def is_of(subject: FeedbackSubject, name: str) -> bool:
    """Returns whether an id names the subject, or the trajectory or group that it is part of."""
    group_id, trajectory_id, call_id = subject
    return name in (group_id, trajectory_id, call_id, f"{group_id}/{trajectory_id}", str(subject))


def _sides(word: PersonalWord) -> Sequence[FeedbackSubject]:
    return [word.subject] if word.other is None else [word.subject, word.other]


def _signature(who: str | None) -> Signature:
    if not who:
        raise CannotRun("who judges? --who NAME")
    return Signature(who=checked_name("who", who), producer=PRODUCER, at_us=now_us(), act_id=new_id())


def _remark(options: LabelOptions) -> Remark | None:
    """None where only a preference is given, with or without a comment. Raises CannotRun."""
    if options.thumb not in (None, "up", "down"):
        raise CannotRun(f"--thumb is up or down, not {options.thumb}")
    scores = dict(_score(text) for text in options.score or ())
    if options.prefer is not None and options.thumb is None and not scores and options.edit is None:
        return None
    if options.thumb is None and not scores and options.edit is None and not options.comment:
        raise CannotRun("nothing is said: give --thumb, --score, --prefer, --edit or --comment")
    return Remark(
        thumb=None if options.thumb is None else options.thumb == "up",
        scores=scores,
        edit=None if options.edit is None else _better_reply(options.edit),
        comment=options.comment,
    )


def _score(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not equals or not math.isfinite(number):
        raise CannotRun(f"--score {text}: it is NAME=VALUE, a finite number, as in style=0.8")
    return name, number


def _better_reply(path: Path) -> object:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return orjson.loads(text) if path.suffix == ".json" else text.removesuffix("\n")
    except (OSError, UnicodeDecodeError, orjson.JSONDecodeError) as error:
        raise CannotRun(f"--edit {path} cannot be read: {error}") from error


def _outcome(options: LabelOptions) -> PreferenceOutcome:
    if (options.tie or options.both_bad) and options.prefer is None:
        raise CannotRun("--tie and --both-bad are said of two: --prefer OTHER names the other")
    if options.tie and options.both_bad:
        raise CannotRun("--tie and --both-bad exclude each other")
    return "tie" if options.tie else "both_bad" if options.both_bad else "chosen"


def _alone(options: LabelOptions, flag: str) -> None:
    feedback = (options.thumb, options.score, options.prefer, options.edit, options.comment)
    if any(feedback) or options.tie or options.both_bad or (flag != "--undo" and options.undo):
        raise CannotRun(f"{flag} cannot be combined with other feedback")


def _publish(settings: LogSettings, events: Sequence[FeedbackFact], by: Signature, *, dry_run: bool) -> Answer:
    if not dry_run:
        append(settings, REWARDS, events)
    answer = {
        "act_id": by.act_id,
        "who": by.who,
        "dry_run": dry_run,
        "events": [as_plain(event) for event in events],
    }
    outcome = "nothing is published" if dry_run else f"{by.who} said it"
    lines = [*map(as_line, Feedback(events).history()), outcome if events else f"nothing of {by.who} stands there"]
    return Answer(answer, lines, 0 if events else 1)


def as_row(word: PersonalWord) -> dict[str, object]:
    """A word as JSON."""
    return {
        "at_us": word.fact.envelope.occurred_at_us,
        "who": word.who,
        "kind": word.kind,
        "name": word.name,
        "subject": str(word.subject),
        "other": None if word.other is None else str(word.other),
        "says": saying(word),
        "comment": word.comment,
        "stands": word.stands,
        "withdrawal": word.is_withdrawal,
        "event_id": word.fact.envelope.event_id,
        "act_id": word.act_id,
    }


def as_line(word: PersonalWord) -> str:
    """A word as a line of text."""
    at = datetime.fromtimestamp(word.fact.envelope.occurred_at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    state = "stands" if word.stands else "withdraws" if word.is_withdrawal else "replaced"
    comment = f'  "{word.comment}"' if word.comment and word.kind != "comment" else ""
    return printable(f"{at}  {state:<9}  {word.who}  {saying(word)}{comment}")


def saying(word: PersonalWord) -> str:
    """Describes a person's feedback."""
    if word.other is not None:
        outcome = getattr(word.fact, "outcome", "unknown")
        text = {
            "chosen": f"{word.subject} is preferred to {word.other}",
            "tie": f"{word.subject} and {word.other} are as good",
            "both_bad": f"{word.subject} and {word.other} are both bad",
            "withdrawn": f"{word.subject} and {word.other}: no comparison",
        }.get(outcome, f"{word.subject} and {word.other}: {outcome}")
        return text if word.name == "overall" else f"{text} ({word.name})"
    if word.is_withdrawal:
        return f"{word.subject}: {word.name} withdrawn"
    if word.kind == "thumb":
        return f"{word.subject}: thumb {'up' if word.value else 'down'}"
    if word.kind == "edit":
        return f"{word.subject}: better reply {orjson.dumps((word.message or {}).get('content')).decode()}"
    return f"{word.subject}: {word.name} {word.comment if word.kind == 'comment' else f'{word.value:g}'}"
