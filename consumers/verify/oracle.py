"""The pool, computed a second way: all records from the complete set of facts, in one pass, with plain dicts.

Invariant: nothing of `datapool` is imported here. Where this file and the folds disagree, one of them is wrong about
the text in `datapool/__init__.py`.
"""
# mypy: ignore-errors
# It filters events by kind in nearly every line and stays short by it; property tests hold it against the folds.

import hashlib
import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from schemas.codec import encode
from schemas.events import (
    CallCaptured,
    CallFailed,
    Curation,
    Event,
    FactPosition,
    GroupClosed,
    GroupMember,
    GroupOpened,
    GroupRecord,
    Judgement,
    RewardAssigned,
    RewardSlot,
    StepCurated,
    StepRecord,
    StepTokens,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryRecord,
    TrajectoryStarted,
)
from schemas.keys import group_key, step_key, tokens_key, trajectory_key
from schemas.topics import GROUPS, STEPS, TRAJECTORIES

MEMBERS_BYTES, BYTES_PER_MEMBER = 2 * 1024 * 1024, 128
CALLS_BYTES, BYTES_PER_CALL = 2 * 1024 * 1024, 8
FAILURES, SLOTS, JUDGEMENTS = 1000, 5000, 1000
"""What one record holds of each; what is beyond is left out and makes nothing ready."""
Facts = Iterable[tuple[Event, FactPosition]]
Pool = dict[tuple[str, bytes], bytes]
"""(topic without prefix, key) -> canonical encoding."""
FACTS = (
    CallCaptured, CallFailed, GroupClosed, GroupOpened, RewardAssigned, StepCurated, TrajectoryAbandoned,
    TrajectoryCompleted, TrajectoryEvicted, TrajectoryStarted,
)  # fmt: skip


def pool_of(facts: Facts) -> Pool:
    """Every record that the pool must hold, and no other."""
    by_group: dict[str, list[tuple[Event, FactPosition]]] = defaultdict(list)
    for fact, position in facts:
        if sound(fact):
            by_group[fact.group_id].append((fact, position))
    pool: Pool = {}
    for group_id, mine in by_group.items():
        pool |= group_rows(group_id, mine)
    return pool


def sound(fact: Event) -> bool:
    """Whether the folds take it; others are dead letters."""
    if not isinstance(fact, FACTS) or not fact.envelope.event_id:
        return False
    if any(len(getattr(fact, name, None) or "") > 4096 for name in ("group_id", "trajectory_id", "call_id")):
        return False
    if isinstance(fact, RewardAssigned):
        of_call = fact.call_id is not None or fact.step_index is not None
        if not of_call and f"{fact.source}/{fact.name}" == "agent/completion":
            return False
        return -1e30 <= fact.value <= 1e30 and (fact.call_id is not None or (fact.step_index or 0) >= 0)
    if isinstance(fact, TrajectoryCompleted):
        return fact.status in ("completed", "failed") and (fact.reward is None or -1e30 <= fact.reward <= 1e30)
    if isinstance(fact, GroupClosed):
        return room(sorted(set(fact.members)), MEMBERS_BYTES, BYTES_PER_MEMBER) == len(set(fact.members))
    if isinstance(fact, StepCurated):
        return all(math.isfinite(number) for number in (fact.quality, *fact.scores.values()) if number is not None)
    return True


def room(names: list[str], bytes_in_all: int, bytes_each: int) -> int:
    """How many stand in a record: each one before which there are not yet so many bytes."""
    before = 0
    for count, name in enumerate(names):
        if before >= bytes_in_all:
            return count
        before += bytes_each + len(name.encode("utf-8", "surrogatepass"))
    return len(names)


def group_rows(group_id: str, facts: list[tuple[Event, FactPosition]]) -> Pool:
    by_trajectory: dict[str, list[tuple[Event, FactPosition]]] = defaultdict(list)
    for fact, position in facts:
        if not isinstance(fact, GroupOpened | GroupClosed):
            by_trajectory[fact.trajectory_id].append((fact, position))
    pool: Pool = {}
    members: dict[str, GroupMember] = {}
    known: set[str] = set()
    for trajectory_id, mine in by_trajectory.items():
        rows, record, is_known = trajectory_rows(group_id, trajectory_id, mine)
        encoded = encode(record)
        pool |= rows
        pool[TRAJECTORIES.name, trajectory_key(group_id, trajectory_id)] = encoded
        members[trajectory_id] = GroupMember(
            trajectory_id=trajectory_id,
            status=record.status,
            ready=record.ready,
            return_total=record.return_total,
            min_version=record.min_version,
            max_version=record.max_version,
            digest=sha(encoded),
        )
        if is_known:
            known.add(trajectory_id)
    pool[GROUPS.name, group_key(group_id)] = encode(group_record(group_id, [f for f, _ in facts], members, known))
    return pool


def group_record(group_id: str, facts: list[Event], members: dict[str, GroupMember], known: set[str]) -> GroupRecord:
    opened = newest([f for f in facts if isinstance(f, GroupOpened)])
    closed = newest([f for f in facts if isinstance(f, GroupClosed)])
    if closed:
        nobody = {m: GroupMember(trajectory_id=m, status="unknown", ready=False, digest="") for m in closed.members}
        strangers = {m: replace(row, status="unknown") for m, row in members.items() if m not in known}
        listed = [{**nobody, **members, **strangers}[m] for m in sorted(set(closed.members))]
    else:
        listed = [members[m] for m in sorted(known)][: room(sorted(known), MEMBERS_BYTES, BYTES_PER_MEMBER)]
    ready = [m for m in listed if m.ready]
    left_out = 0 if closed else len(known) - len(listed)
    reasons = {"too_many_members"} if left_out else set()
    if [m for m in listed if m.status == "open"]:
        reasons.add("members_open")
    if not ready:
        reasons.add("no_ready_member")
    if opened and not closed and opened.expected_size is not None and len(ready) < opened.expected_size:
        reasons.add("members_missing")
    returns = [m.return_total for m in ready]
    whole = bool(returns) and None not in returns
    progress = sign_of_life(facts)
    return GroupRecord(
        group_id=group_id,
        declared=opened is not None,
        declared_event_id=opened.envelope.event_id if opened else "",
        declared_us=opened.envelope.occurred_at_us if opened else 0,
        expected_size=opened.expected_size if opened else None,
        channel=channel_of(facts),
        task=opened.task if opened else None,
        deadline_us=opened.deadline_us if opened else None,
        agent=opened.agent if opened else None,
        tags=opened.tags if opened else (),
        run_id=min((f.envelope.run_id for f in facts if f.envelope.run_id is not None), default=None),
        members=tuple(listed),
        members_left_out=left_out,
        closed=closed is not None,
        closed_event_id=closed.envelope.event_id if closed else "",
        closed_us=closed.envelope.occurred_at_us if closed else 0,
        closed_members=tuple(sorted(set(closed.members))) if closed else (),
        ready=not reasons,
        reasons=tuple(sorted(reasons)),
        reward_mean=math.fsum(returns) / len(returns) if whole else None,
        reward_std=deviation(returns) if whole and len(returns) > 1 else None,
        zero_variance=whole and len(returns) > 1 and len(set(returns)) == 1,
        min_version=min((m.min_version for m in ready if m.min_version is not None), default=None),
        max_version=max((m.max_version for m in ready if m.max_version is not None), default=None),
        last_progress_event_id=progress[1],
        last_progress_us=progress[0],
        digest=joined([(m.trajectory_id, m.digest) for m in listed]),
    )


def deviation(returns: list[float]) -> float:
    centre = math.fsum(returns) / len(returns)
    squares = [(value - centre) ** 2 for value in returns]
    return math.sqrt(math.fsum(squares) / (len(squares) - 1)) if len(set(returns)) > 1 else 0.0


def trajectory_rows(
    group_id: str, trajectory_id: str, facts: list[tuple[Event, FactPosition]]
) -> tuple[Pool, TrajectoryRecord, bool]:
    events = [fact for fact, _ in facts]
    evictions = [f for f in events if isinstance(f, TrajectoryEvicted)]
    if evictions:
        last = newest(evictions)
        stub = TrajectoryRecord(
            group_id=group_id, trajectory_id=trajectory_id, status="evicted", status_event_id=last.envelope.event_id,
            status_us=last.envelope.occurred_at_us, reason=last.reason, ready=False, reasons=("evicted", "no_trainable_call"), digest=joined([]),
        )  # fmt: skip
        return {}, stub, True
    calls = winning_calls(facts)
    order = sorted(calls, key=lambda c: (first_received(c, facts), c))
    end = ending(events)
    rewards = winning_rewards(events, end)
    about = defaultdict(list)  # a call -> the facts that its record shows
    for fact, position in facts:
        about[getattr(fact, "call_id", None)].append((fact, position))
    starts = [(f, p) for f, p in about[None] if isinstance(f, TrajectoryStarted)]
    places = {call_id: place for place, call_id in enumerate(counted(order))}
    meant = defaultdict(list)  # a call, or the place of one -> its rewards
    for slot in rewards:
        meant[slot.step_index if slot.call_id is None else slot.call_id].append(slot)
    steps = {
        call_id: step_record(
            (group_id, trajectory_id, call_id),
            about[call_id] + starts,
            calls,
            meant[call_id],
            meant[places[call_id]] if call_id in places else [],
        )
        for call_id in sorted(
            {f.call_id for f in events if isinstance(f, CallCaptured | StepCurated)}
            | {s.call_id for s in rewards if s.call_id}
        )
    }
    pool: Pool = {}
    for call_id, step in steps.items():
        pool[STEPS.name, step_key(group_id, trajectory_id, call_id)] = encode(step)
    for call_id, (call, _) in calls.items():
        pool[STEPS.name, tokens_key(group_id, trajectory_id, call_id)] = encode(
            StepTokens(
                group_id=group_id, trajectory_id=trajectory_id, call_id=call_id, attempt=call.attempt, prompt=call.prompt,
                response_ids=call.response_ids, response_logprobs=call.response_logprobs, spans=call.spans,
                digest=steps[call_id].digest,
            )
        )  # fmt: skip
    return pool, *trajectory_record(group_id, trajectory_id, events, steps, order, rewards, branches(calls), end)


def ending(events: list[Event]) -> TrajectoryCompleted | TrajectoryAbandoned | None:
    """The one that counts, and nothing of any other does."""
    ends = [f for f in events if isinstance(f, TrajectoryCompleted | TrajectoryAbandoned)]
    rank = {"abandoned": 1, "failed": 2, "completed": 3}
    top = max((rank[getattr(f, "status", "abandoned")] for f in ends), default=0)
    return newest([f for f in ends if rank[getattr(f, "status", "abandoned")] == top])


def winning_calls(facts: list[tuple[Event, FactPosition]]) -> dict[str, tuple[CallCaptured, FactPosition]]:
    won: dict[str, tuple[CallCaptured, FactPosition]] = {}
    for fact, at in sorted(
        ((f, p) for f, p in facts if isinstance(f, CallCaptured)),
        key=lambda x: (x[0].status != "completed", -x[0].timings.received_us, -x[0].attempt, x[1].offset),
    ):
        won.setdefault(fact.call_id, (fact, at))
    return won


def first_received(call_id: str, facts: list[tuple[Event, FactPosition]]) -> int:
    return min(f.timings.received_us for f, _ in facts if isinstance(f, CallCaptured) and f.call_id == call_id)


def winning_rewards(events: list[Event], end: Event | None) -> list[RewardSlot]:
    slots: dict[tuple, RewardSlot] = {}
    for fact in [*(f for f in events if isinstance(f, RewardAssigned)), end]:
        if isinstance(fact, RewardAssigned):
            index = fact.step_index if fact.call_id is None else None
            new = RewardSlot(
                call_id=fact.call_id, step_index=index, source=fact.source, name=fact.name, value=fact.value,
                revision=fact.revision, event_id=fact.envelope.event_id, occurred_at_us=fact.envelope.occurred_at_us,
            )  # fmt: skip
        elif isinstance(fact, TrajectoryCompleted) and fact.reward is not None:
            new = RewardSlot(
                source="agent", name="completion", value=fact.reward, revision=0, event_id=fact.envelope.event_id,
                occurred_at_us=fact.envelope.occurred_at_us,
            )  # fmt: skip
        else:
            continue
        key = (new.call_id, new.step_index, new.source, new.name)
        old = slots.get(key)
        if old is None or slot_order(new) > slot_order(old):
            slots[key] = new
    first = sorted(slots.values(), key=lambda s: (-1 if s.step_index is None else s.step_index, s.source, s.name))
    of_call: dict[str | None, int] = defaultdict(int)
    kept = []
    for slot in first:
        of_call[slot.call_id] += not of_completion(slot)
        if of_completion(slot) or of_call[slot.call_id] <= SLOTS:
            kept.append(slot)
    return kept


def of_completion(slot: RewardSlot) -> bool:
    return (slot.call_id, slot.step_index, slot.source, slot.name) == (None, None, "agent", "completion")


def slot_order(slot: RewardSlot) -> tuple:
    """Revision, time, event id, then what was said: the number, of two zeros the one without a sign."""
    return slot.revision, slot.occurred_at_us, slot.event_id, slot.value, str(slot.value)[:1] != "-"


def step_record(
    ids: tuple[str, str, str],
    facts: list[tuple[Event, FactPosition]],
    calls: dict[str, tuple[CallCaptured, FactPosition]],
    own: list[RewardSlot],
    indexed: list[RewardSlot],
) -> StepRecord:
    group_id, trajectory_id, call_id = ids
    curation = curation_of([f for f, _ in facts if isinstance(f, StepCurated) and f.call_id == call_id])
    fields = {
        "group_id": group_id,
        "trajectory_id": trajectory_id,
        "call_id": call_id,
        "rewards": (*own, *indexed),
        "reward_total": step_total(own, indexed),
        "curation": curation,
        "task": start.task if (start := newest([f for f, _ in facts if isinstance(f, TrajectoryStarted)])) else None,
    }
    reasons = {"curated_out"} if curation and curation.trainable is False else set()
    if curation and len(curation.judgements) == JUDGEMENTS:
        reasons.add("too_many_judgements")
    if call_id not in calls:
        return StepRecord(**fields, reasons=tuple(sorted(reasons | {"no_call"})))
    call, at = calls[call_id]
    reasons |= call_reasons(call)
    if not chain_known(call_id, calls):
        reasons.add("parent_missing")
    runs = {s.run_id for s in call.spans}
    return StepRecord(
        **fields,
        attempt=call.attempt,
        attempts=tuple(sorted({f.attempt for f, _ in facts if isinstance(f, CallCaptured) and f.call_id == call_id})),
        first_received_us=first_received(call_id, facts),
        position=at,
        digest=tokens_digest(call),
        prompt_id=call.prompt.full_digest,
        response_id=sha(call.response_ids),
        prompt_length=call.prompt.full_length,
        response_length=len(call.response_ids) // 4,
        base_call_id=call.prompt.base_call_id,
        base_keep=call.prompt.keep,
        base_digest=call.base_digest,
        spans=call.spans,
        min_version=min((s.version for s in call.spans), default=None),
        max_version=max((s.version for s in call.spans), default=None),
        policy_run_id={0: None, 1: next(iter(runs), None)}.get(len(runs), "mixed"),
        sampling=call.sampling,
        finish_reason=call.finish_reason,
        status=call.status,
        trainable=not reasons,
        reasons=tuple(sorted(reasons)),
        model_id=call.model_id,
        worker_id=call.worker_id,
        agent=call.agent,
        channel=call.channel,
        tags=call.tags,
        usage=call.usage,
        timings=call.timings,
        integrity=call.integrity,
        run_id=call.envelope.run_id,
    )


def counted(order: list[str]) -> list[str]:
    """Of the choices of a call (X, X.1, X.2, ...) the first that is there, in order of the calls."""
    calls: dict[str, dict[int, str]] = defaultdict(dict)
    for call_id in order:
        choice = re.fullmatch(r"(.*)\.([1-9][0-9]*)", call_id, re.DOTALL)
        name, number = (choice[1], int(choice[2])) if choice else (call_id, 0)
        calls[name][number] = call_id
    return [choices[min(choices)] for choices in calls.values()]


def step_total(own: list[RewardSlot], indexed: list[RewardSlot]) -> float | None:
    best: dict[tuple[str, str], RewardSlot] = {}
    for slot in sorted(own + indexed, key=slot_order):
        best[slot.source, slot.name] = slot
    return math.fsum(s.value for s in best.values()) if best else None


def call_reasons(call: CallCaptured) -> set[str]:
    found: set[str] = set()
    count, rest = divmod(len(call.response_ids), 4)
    sampling = call.sampling
    bounds = [0, *(s.end for s in call.spans)]
    tiled = [s.start for s in call.spans] == bounds[:-1] and bounds[-1] == count and bounds == sorted(set(bounds))
    edge = call.prompt
    checks = {
        "ids_malformed": rest > 0,
        "logprobs_mismatch": len(call.response_logprobs) != len(call.response_ids),
        "prompt_mismatch": len(edge.suffix) != 4 * (edge.full_length - edge.keep) or (edge.base_call_id is None and edge.keep != 0) or edge.keep < 0
        or (edge.base_call_id is None and sha(edge.suffix) != edge.full_digest),
        f"status_{call.status}": call.status != "completed",
        "response_empty": count == 0,
        "greedy": sampling.temperature <= 0,
        "top_p": sampling.top_p != 1.0,
        "top_k": sampling.top_k > 0,
        "min_p": sampling.min_p != 0.0,
        "penalties": sampling.presence_penalty != 0 or sampling.frequency_penalty != 0 or sampling.repetition_penalty != 1,
        "constrained": sampling.constrained,
        "spans_unknown": not call.spans,
        "spans_mismatch": bool(call.spans) and not tiled,
        "policy_run_mixed": len({s.run_id for s in call.spans}) > 1,
    }  # fmt: skip
    found |= {word for word, holds in checks.items() if holds}
    if not call.integrity.complete:
        found |= set(call.integrity.missing) or {"incomplete"}
    return found


def chain_known(call_id: str, calls: dict[str, tuple[CallCaptured, FactPosition]]) -> bool:
    """Every link down to a full prompt; one that comes twice closes a circle."""
    here = calls[call_id][0]
    passed: set[str] = set()
    while here.prompt.base_call_id is not None:
        base = calls.get(here.prompt.base_call_id, (None, None))[0]
        if base is None or here.prompt.keep > length_of(base) or needed_of(base, here) != here.base_digest:
            return False
        if call_reasons(base) & {"ids_malformed", "prompt_mismatch"} or base.call_id in passed:
            return False
        passed.add(base.call_id)
        here = base
    return True


def needed_of(base: CallCaptured, call: CallCaptured) -> str:
    """The ids that a call takes from its base, by digest: its prompt's, and its response's where it takes any of these."""
    prompt = base.prompt.full_digest
    if call.prompt.keep <= base.prompt.full_length:
        return prompt
    both = [part.encode() for part in (prompt, sha(base.response_ids))]
    return sha(b"".join(struct.pack("<q", len(part)) + part for part in both))


def length_of(call: CallCaptured) -> int:
    return call.prompt.full_length + len(call.response_ids) // 4


def branches(calls: dict[str, tuple[CallCaptured, FactPosition]]) -> int:
    """Calls that begin a line: all but the first to keep the whole of its base, as it was when they were written."""
    taken: set[str] = set()
    for call, _ in calls.values():
        base = calls.get(call.prompt.base_call_id, (None, None))[0]
        if base and call.prompt.keep == length_of(base) and call.base_digest == needed_of(base, call):
            taken.add(base.call_id)
    return len(calls) - len(taken)


def curation_of(facts: list[StepCurated]) -> Curation | None:
    if not facts:
        return None
    one_each: dict[str, StepCurated] = {}
    for fact in sorted(facts, key=judgement_order):
        one_each[fact.envelope.event_id] = fact
    rising = sorted(one_each.values(), key=lambda f: (f.revision, f.envelope.occurred_at_us, f.envelope.event_id))
    rising = rising[-JUDGEMENTS:]
    gone: set[str] = set()
    fields: dict[str, object] = {}
    scores: dict[str, float | None] = {}
    for fact in reversed(rising):
        if fact.envelope.event_id in gone:
            continue
        gone |= set(fact.undoes)
        for scorer in fact.scores.keys() - scores.keys():
            fields.setdefault("who", fact.who)
            scores[scorer] = fact.scores[scorer]
        for name in ("trainable", "quality", "tags", "note"):
            if (value := getattr(fact, name)) is not None:
                fields.setdefault("who", fact.who)
                fields.setdefault(name, value)
    said = ("revision", "who", "trainable", "quality", "tags", "note", "undoes")
    judgements = [
        Judgement(
            event_id=f.envelope.event_id,
            occurred_at_us=f.envelope.occurred_at_us,
            scores=by_name(f.scores),
            **{n: getattr(f, n) for n in said},
        )
        for f in rising
    ]
    return Curation(judgements=tuple(judgements), scores=by_name(scores), **fields)


def by_name(scores: dict[str, float | None]) -> dict[str, float | None]:
    return {scorer: scores[scorer] for scorer in sorted(scores)}


def judgement_order(fact: StepCurated) -> list:
    """What is said, in the order of the record: nothing before something, False before True, -0.0 before 0.0."""
    at_us = fact.envelope.occurred_at_us
    said = (fact.revision, at_us, fact.who, fact.trainable, fact.quality, fact.tags, fact.note, fact.undoes)
    scores = [(scorer, signed(fact.scores[scorer])) for scorer in sorted(fact.scores)]
    return [*map(signed, said), scores]


def signed(value: object) -> tuple:
    return () if value is None else (value, not str(value).startswith("-"))


def trajectory_record(
    group_id: str,
    trajectory_id: str,
    events: list[Event],
    steps: dict[str, StepRecord],
    order: list[str],
    rewards: list[RewardSlot],
    lines: int,
    end: TrajectoryCompleted | TrajectoryAbandoned | None,
) -> tuple[TrajectoryRecord, bool]:
    status = "open" if end is None else getattr(end, "status", "abandoned")
    start = newest([f for f in events if isinstance(f, TrajectoryStarted)])
    failures = sorted({f"{f.call_id}#{f.attempt}" for f in events if isinstance(f, CallFailed)})[:FAILURES]
    own = [s for s in rewards if s.call_id is None]
    outcomes = [s.value for s in own if s.step_index is None]
    totals = [t for c in order if (t := steps[c].reward_total) is not None]
    outcome = math.fsum(outcomes) if outcomes else None
    parts = totals + ([outcome] if outcome is not None else [])
    known = bool(order or failures or start or end)
    trainable = sum(steps[c].trainable for c in order)
    calls_expected = getattr(end, "calls", None)
    rewards_expected = getattr(end, "rewards", None)
    judged = [s for s in rewards if not of_completion(s)]
    reasons = set()
    if status in ("open", "abandoned"):
        reasons.add(status)
    if status == "failed" and not outcomes:
        reasons.add("failed_without_outcome")
    if not known:
        reasons.add("unknown")
    if calls_expected is not None and len(counted(order)) < calls_expected:
        reasons.add("calls_missing")
    if calls_expected is not None and len(counted(order)) > calls_expected:
        reasons.add("calls_uncounted")
    if rewards_expected is not None and len(judged) < rewards_expected:
        reasons.add("rewards_missing")
    if not trainable:
        reasons.add("no_trainable_call")
    if max(Counter(s.call_id for s in judged).values(), default=0) == SLOTS:
        reasons.add("too_many_rewards")
    fitting = order[: room(order, CALLS_BYTES, BYTES_PER_CALL)]
    if fitting != order:
        reasons.add("too_many_calls")
    runs = {steps[c].policy_run_id for c in order} - {None}
    progress = sign_of_life(events)
    record = TrajectoryRecord(
        group_id=group_id,
        trajectory_id=trajectory_id,
        status=status,
        status_event_id=end.envelope.event_id if end else "",
        status_us=end.envelope.occurred_at_us if end else 0,
        reason=getattr(end, "reason", ""),
        calls_expected=calls_expected,
        rewards_expected=rewards_expected,
        calls=tuple(fitting),
        calls_left_out=len(order) - len(fitting),
        branches=lines,
        failed_calls=tuple(failures),
        rewards=tuple(own),
        outcome=outcome,
        return_total=math.fsum(parts) if parts else None,
        min_version=min((v for c in order if (v := steps[c].min_version) is not None), default=None),
        max_version=max((v for c in order if (v := steps[c].max_version) is not None), default=None),
        policy_run_id=None if not runs else runs.pop() if len(runs) == 1 else "mixed",
        channel=channel_of(events),
        agent=min((f.agent for f in events if getattr(f, "agent", None) is not None), default=None),
        task=start.task if start else None,
        tags=start.tags if start else (),
        run_id=min((f.envelope.run_id for f in events if f.envelope.run_id is not None), default=None),
        trainable_calls=trainable,
        ready=not reasons,
        reasons=tuple(sorted(reasons)),
        registered_event_id=start.envelope.event_id if start else "",
        registered_us=start.envelope.occurred_at_us if start else 0,
        metadata=start.metadata if start else None,
        last_progress_event_id=progress[1],
        last_progress_us=progress[0],
        digest=joined([(c, sha(encode(s))) for c, s in steps.items()]),
    )
    return record, known


SAID = {
    GroupOpened: ("expected_size", "task", "deadline_us", "agent", "tags"),
    GroupClosed: ("members",),
    TrajectoryStarted: ("task", "tags", "metadata"),
    TrajectoryCompleted: ("calls", "rewards", "reward"),
    TrajectoryAbandoned: ("reason",),
    TrajectoryEvicted: ("reason",),
}
"""What a record shows of its winning fact, in the order in which it decides between facts of one event id."""


def newest(events: list) -> Event | None:
    """Of one kind: the latest, of one moment that of the highest event id, then the last when sorted by what they say."""
    return max(events, key=lambda f: (f.envelope.occurred_at_us, f.envelope.event_id, said(f)), default=None)


def said(fact: Event) -> list:
    words = [getattr(fact, name) for name in SAID[type(fact)]]
    words = [tuple(sorted(set(w))) if isinstance(fact, GroupClosed) else w for w in words]
    return [signed(w) for w in words]


def sign_of_life(events: list[Event]) -> tuple[int, str]:
    """The latest; none is before 1970."""
    signs = [f.envelope for f in events if not isinstance(f, TrajectoryAbandoned | GroupClosed | TrajectoryEvicted)]
    return max([(0, ""), *((e.occurred_at_us, e.event_id) for e in signs)])


def channel_of(events: list[Event]) -> str:
    names = {f.channel for f in events if hasattr(f, "channel")} - {""}
    others = sorted(names - {"val", "train"})
    return "val" if "val" in names else others[0] if others else "train" if names else ""


def tokens_digest(call: CallCaptured) -> str:
    parts = [call.prompt.full_digest.encode(), call.response_ids, call.response_logprobs]
    for s in call.spans:
        parts += [s.run_id.encode(), struct.pack("<qqq", s.version, s.start, s.end)]
    return sha(b"".join(struct.pack("<q", len(p)) + p for p in parts))


def joined(pairs: list[tuple[str, str]]) -> str:
    parts = [text.encode() for pair in sorted(pairs) for text in pair]
    return sha(b"".join(struct.pack("<q", len(p)) + p for p in parts))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
