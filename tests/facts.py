"""Facts for tests: plain builders with good defaults, and hypothesis strategies that mix everything that can go wrong."""

import hashlib
import itertools
from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from claw_r1.datapool.digests import base_digest
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    Edge,
    Envelope,
    Event,
    FactPosition,
    GroupClosed,
    GroupEvicted,
    GroupOpened,
    Integrity,
    OutputEdited,
    PreferenceGiven,
    RewardAssigned,
    Sampling,
    ScoringFailed,
    StepCurated,
    SubjectRef,
    Timings,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
    Usage,
    VerdictRef,
    VersionSpan,
)

_numbers = itertools.count()
PLAIN = Sampling(temperature=1.0, top_p=1.0, top_k=0)
ON_REWARDS = (RewardAssigned, ScoringFailed, StepCurated, PreferenceGiven, OutputEdited)


def envelope(event_id: str | None = None, *, at_us: int = 0, run_id: str | None = "run") -> Envelope:
    return Envelope(
        event_id=event_id or f"e{next(_numbers):08d}", occurred_at_us=at_us, producer="test/0", run_id=run_id
    )


def edge(ids: Sequence[int] = (1, 2, 3), *, base: str | None = None, keep: int = 0) -> Edge:
    packed = pack_ids(ids)
    digest = hashlib.sha256(packed).hexdigest()
    return Edge(base_call_id=base, keep=keep, suffix=packed, full_length=keep + len(ids), full_digest=digest)


def call(group: str = "g", trajectory: str = "t", call_id: str = "c", **changes: object) -> CallCaptured:
    """A call that is fit to train on."""
    ids = changes.pop("ids", (7, 8, 9))
    received = changes.pop("received_us", 0)
    fields = {
        "envelope": envelope(),
        "prompt": edge(),
        "response_ids": pack_ids(ids),
        "response_logprobs": pack_floats([-0.5] * len(ids)),
        "spans": (VersionSpan(run_id="run", version=3, start=0, end=len(ids)),),
        "sampling": PLAIN,
        "finish_reason": "stop",
        "request": Edge(suffix=b"{}", full_length=2, full_digest=""),
        "response_body": b"{}",
        "model_id": "tiny",
        "upstream": "http://engine",
        "status": "completed",
        "http_status": 200,
        "usage": Usage(prompt_tokens=3, completion_tokens=len(ids)),
        "timings": Timings(received_us=received, dispatched_us=received, done_us=received),
        "integrity": Integrity(complete=True),
    }
    return CallCaptured(group_id=group, trajectory_id=trajectory, call_id=call_id, **{**fields, **changes})


def written_against(base: CallCaptured, keep: int) -> str:
    """`CallCaptured.base_digest` of a prompt that keeps so many ids of a base."""
    response = hashlib.sha256(base.response_ids).hexdigest()
    return base_digest(keep, base.prompt.full_length, base.prompt.full_digest, response)


def failure(group: str = "g", trajectory: str = "t", call_id: str = "c", **changes: object) -> CallFailed:
    timings = Timings(received_us=0, dispatched_us=0, done_us=0)
    fields = {"envelope": envelope(), "http_status": 500, "reason": "upstream", "timings": timings, **changes}
    return CallFailed(group_id=group, trajectory_id=trajectory, call_id=call_id, **fields)


def opened(group: str = "g", **changes: object) -> GroupOpened:
    return GroupOpened(group_id=group, **{"envelope": envelope(), **changes})


def closed(group: str = "g", members: Sequence[str] = (), **changes: object) -> GroupClosed:
    fields = {"envelope": envelope(), "reason": "deadline", "last_progress_event_id": "", **changes}
    return GroupClosed(group_id=group, members=tuple(members), **fields)


def started(group: str = "g", trajectory: str = "t", **changes: object) -> TrajectoryStarted:
    return TrajectoryStarted(group_id=group, trajectory_id=trajectory, **{"envelope": envelope(), **changes})


def completed(group: str = "g", trajectory: str = "t", **changes: object) -> TrajectoryCompleted:
    fields = {"envelope": envelope(), "status": "completed", **changes}
    return TrajectoryCompleted(group_id=group, trajectory_id=trajectory, **fields)


def abandoned(group: str = "g", trajectory: str = "t", **changes: object) -> TrajectoryAbandoned:
    fields = {"envelope": envelope(), "reason": "idle", "last_progress_event_id": "", **changes}
    return TrajectoryAbandoned(group_id=group, trajectory_id=trajectory, **fields)


def evicted(group: str = "g", trajectory: str = "t", **changes: object) -> TrajectoryEvicted:
    fields = {"envelope": envelope(), "reason": "asked", "requested_by": "someone", **changes}
    return TrajectoryEvicted(group_id=group, trajectory_id=trajectory, **fields)


def reward(group: str = "g", trajectory: str = "t", value: float | None = 1.0, **changes: object) -> RewardAssigned:
    return RewardAssigned(group_id=group, trajectory_id=trajectory, value=value, **{"envelope": envelope(), **changes})


def gave_up(group: str = "g", trajectory: str = "t", **changes: object) -> ScoringFailed:
    fields = {"envelope": envelope(), "source": "judge", "name": "style", "reason": "deadline", **changes}
    return ScoringFailed(group_id=group, trajectory_id=trajectory, **fields)


def preferred(group: str = "g", chosen: str = "t", rejected: str = "u", **changes: object) -> PreferenceGiven:
    pair = {"chosen": SubjectRef(trajectory_id=chosen), "rejected": SubjectRef(trajectory_id=rejected)}
    return PreferenceGiven(
        group_id=group, **{"envelope": envelope(), "source": "human:p", "outcome": "chosen", **pair, **changes}
    )


def edited(group: str = "g", trajectory: str = "t", call_id: str = "c", **changes: object) -> OutputEdited:
    fields = {"envelope": envelope(), "source": "human:p", "message": "{}", **changes}
    return OutputEdited(group_id=group, trajectory_id=trajectory, call_id=call_id, **fields)


def verdict(**changes: object) -> VerdictRef:
    return VerdictRef(**{"verdict_id": "v", "version": 1, **changes})


def curated(group: str = "g", trajectory: str = "t", call_id: str = "c", **changes: object) -> StepCurated:
    fields = {"envelope": envelope(), "who": "someone", **changes}
    return StepCurated(group_id=group, trajectory_id=trajectory, call_id=call_id, **fields)


def changed_envelope(fact: Event, **fields: object) -> Event:
    """The fact with other words on its envelope."""
    return replace(fact, envelope=replace(fact.envelope, **fields))


def topic_of(fact: Event) -> str:
    return "claw.rewards" if isinstance(fact, ON_REWARDS) else "claw.calls"


def evicted_group(group: str = "g", **changes: object) -> GroupEvicted:
    fields = {"envelope": envelope(), "reason": "asked", "requested_by": "someone", **changes}
    return GroupEvicted(group_id=group, **fields)


def placed(facts: Sequence[Event], partition: int = 0) -> list[tuple[Event, FactPosition]]:
    """Facts with positions, in the order of the log."""
    return [(fact, FactPosition(topic=topic_of(fact), partition=partition, offset=n)) for n, fact in enumerate(facts)]


GROUPS = st.sampled_from(["g", "g", "g", "a/b"])
TRAJECTORIES = st.sampled_from(["t", "u", "v"])
CALLS = st.sampled_from(["c", "d", "e", "c.1", "d.2", "d.10"])
CHANNELS = st.sampled_from(["train", "train", "val", "probe"])
RUNS = st.sampled_from(["run", "run", "run", "other", None])
REVISIONS = st.sampled_from([0, 0, 0, 1, 2, -1])
VALUES = st.sampled_from([0.0, -0.0, 1.0, -0.25, 0.1, 0.2, 0.3, 1e16, 1e30, -1e30])
COUNTS = st.none() | st.integers(0, 3)
VERDICTS = st.sampled_from([None, None, verdict()])
AGAIN = ["30", "70"]
REASONS = st.sampled_from(["asked", "idle"])
TAGS = st.sampled_from([(), ("x",), ("x", "y")])


@st.composite
def _envelopes(draw: st.DrawFn) -> Envelope:
    """Mostly with ids of their own; some ids meet other content, as a repeated request makes it."""
    again = draw(st.sampled_from([None, None, None, *AGAIN]))
    event_id = again or f"{draw(st.integers(0, 99)):02d}-{next(_numbers)}"
    return envelope(event_id, at_us=draw(st.integers(-1, 5)), run_id=draw(RUNS))


@st.composite
def _calls(draw: st.DrawFn, group: str) -> CallCaptured:
    count = draw(st.sampled_from([0, 2, 3, 3, 3]))
    version = draw(st.integers(0, 3))
    span = VersionSpan(run_id=draw(st.sampled_from(["run", "run", "base"])), version=version, start=0, end=3)
    base = draw(st.none() | CALLS)
    odd = draw(st.sampled_from([{}, {}, {}, {"status": "aborted"}, {"spans": ()}, {"response_logprobs": b"\0\0\0"},
        {"sampling": Sampling(temperature=0.0, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=1.0, constrained=True)},
        {"integrity": Integrity(complete=False, missing=("logprobs", "version_unknown"))}, {"integrity": Integrity(complete=False)},
        {"integrity": Integrity(complete=False, missing=("prompt_mismatch", "fold_bug"))}, {"integrity": Integrity(complete=False, missing=("ids_malformed",))},
        {"spans": (VersionSpan(run_id="run", version=1, start=0, end=1), VersionSpan(run_id="other", version=2, start=1, end=3))},
        {"response_ids": b"\1\2\3\4\5"}]))  # fmt: skip
    return call(
        group,
        draw(TRAJECTORIES),
        draw(CALLS),
        **{
            "envelope": draw(_envelopes()),
            "attempt": draw(st.sampled_from([0, 0, 1])),
            "ids": tuple(range(draw(st.integers(1, 9)), 99))[:count],
            "spans": (span,),
            "prompt": edge(
                draw(st.sampled_from([(1, 2), (1, 2), (1, 3)])),
                base=base,
                keep=draw(st.sampled_from([0, 2, 5])) if base else draw(st.sampled_from([0, 0, 1])),
            ),
            "received_us": draw(st.integers(0, 4)),
            "channel": draw(CHANNELS),
            "agent": draw(st.sampled_from([None, "one", "two"])),
            "tags": draw(
                st.sampled_from([(), ("x",), ("x", "y"), ("kind:side", "x"), ("x", "kind:main", "kind:side")])
            ),
            "call_kind": draw(st.sampled_from([None, None, None, "main", "side", "subagent", "odd"])),
            "has_tools": draw(st.booleans()),
            **odd,
        },
    )


@st.composite
def _other_words(draw: st.DrawFn, kind: str, group: str, trajectory: str, at: Envelope) -> Event:
    """a: abandoned; u: a scorer that gave up; p: what somebody prefers or writes, which the pool passes by."""
    if kind == "a":
        return abandoned(group, trajectory, envelope=at, reason=draw(REASONS))
    if kind == "p":
        return draw(
            st.sampled_from([preferred(group, trajectory, envelope=at), edited(group, trajectory, envelope=at)])
        )
    return gave_up(
        group,
        trajectory,
        envelope=at,
        call_id=draw(st.none() | CALLS),
        revision=draw(REVISIONS),
        verdict=draw(VERDICTS),
        reason=draw(st.sampled_from(["deadline", "crashed"])),
    )


@st.composite
def facts(draw: st.DrawFn) -> Event:
    """Any fact, over few ids, so that facts meet."""
    group, trajectory, at = draw(GROUPS), draw(TRAJECTORIES), draw(_envelopes())
    kind = draw(st.sampled_from("ccccrrrrqqsfxxxoabgeup"))
    if kind == "c":
        return draw(_calls(group))
    if kind == "r":
        subject = draw(st.fixed_dictionaries({}, optional={"call_id": CALLS, "step_index": st.integers(0, 3)}))
        names = {
            "source": draw(st.sampled_from(["agent", "judge"])),
            "name": draw(st.sampled_from(["outcome", "style", *(["completion"] if subject else [])])),
        }
        return reward(
            group,
            trajectory,
            draw(st.none() | VALUES),
            envelope=at,
            revision=draw(REVISIONS),
            verdict=draw(VERDICTS),
            **names,
            **subject,
        )
    if kind in "upa":
        return draw(_other_words(kind, group, trajectory, at))
    if kind == "q":
        given = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "trainable": st.booleans(),
                    "quality": VALUES,
                    "tags": TAGS,
                    "note": st.just("n"),
                    "undoes": st.lists(st.sampled_from(AGAIN), max_size=2).map(tuple),
                    "scores": st.dictionaries(st.sampled_from(["a@1", "b@1"]), st.none() | VALUES),
                },
            )
        )
        return curated(
            group,
            trajectory,
            draw(CALLS),
            envelope=at,
            who=draw(st.sampled_from("pq")),
            revision=draw(REVISIONS),
            **given,
        )
    if kind == "x":
        status = draw(st.sampled_from(["completed", "completed", "failed"]))
        return completed(
            group,
            trajectory,
            envelope=at,
            status=status,
            calls=draw(COUNTS),
            rewards=draw(COUNTS),
            reward=draw(st.none() | VALUES),
            revision=draw(REVISIONS),
        )
    if kind == "o":
        size = draw(st.none() | st.integers(0, 3))
        return opened(
            group,
            envelope=at,
            expected_size=size,
            channel=draw(CHANNELS),
            task=draw(st.sampled_from([None, "1"])),
            deadline_us=draw(st.sampled_from([None, 5, 9])),
            ordinal=draw(st.sampled_from([None, 0, 7])),
            agent=draw(st.sampled_from([None, "one"])),
            tags=draw(TAGS),
            revision=draw(REVISIONS),
        )
    if kind == "g":
        return closed(group, draw(st.lists(st.sampled_from("tuvw"), max_size=3)), envelope=at)
    if kind == "s":
        return started(
            group,
            trajectory,
            envelope=at,
            channel=draw(CHANNELS),
            task=draw(st.sampled_from([None, "2"])),
            tags=draw(TAGS),
            metadata=draw(st.sampled_from([None, "{}"])),
            idle_s=draw(st.sampled_from([None, 1.5, 600.0])),
            revision=draw(REVISIONS),
        )
    if kind == "f":
        return failure(
            group, trajectory, draw(CALLS), envelope=at, attempt=draw(st.integers(0, 1)), channel=draw(CHANNELS)
        )
    gone = draw(st.sampled_from([evicted(group, trajectory, envelope=at), evicted_group(group, envelope=at)]))
    return replace(gone, reason=draw(REASONS)) if draw(st.integers(0, 3)) == 0 else draw(_calls(group))


def linked(events: list[Event], draw: st.DrawFn) -> list[Event]:
    """Most calls that name a base name what one of its captures is, mostly of the trajectory's own."""
    captures = [one for one in events if isinstance(one, CallCaptured)]

    def link(event: Event) -> Event:
        if not isinstance(event, CallCaptured) or event.prompt.base_call_id is None:
            return event
        bases = [one for one in captures if one.call_id == event.prompt.base_call_id]
        keep = event.prompt.keep
        digests = [written_against(one, keep) for one in bases if one.trajectory_id == event.trajectory_id]
        others = [written_against(one, keep) for one in bases]
        return replace(event, base_digest=draw(st.sampled_from([*digests, *digests, "", *others])))

    return [link(event) for event in events]


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[Event, FactPosition]]:
    """A log: facts with positions, some of them written twice."""
    events = linked(draw(st.lists(facts(), min_size=1, max_size=24)), draw)
    again = draw(st.lists(st.sampled_from(events), max_size=4))
    return placed(draw(st.permutations([*events, *again])))
