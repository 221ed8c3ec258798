"""The tokens of a call: ids, text, log-probabilities, versions, and what a batch trained of them."""

import math
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from claw_r1.consumers.dashboard.routes.parameters import CallIdQuery, GroupId, Source, TrajectoryIdQuery, trajectory_of
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.dashboard.tokens.facts import TokenLines, call_fact, request_body
from claw_r1.consumers.dashboard.tokens.pieces import NoTokenizer, pieces_of
from claw_r1.consumers.dashboard.tokens.training import batches, chosen_batch, sampling_runs, stretch_json
from claw_r1.consumers.dashboard.tokens.vocabularies import CONTEXT, Vocabularies, candidates
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Looking
from claw_r1.datapool.view.conversations import CallBodies, reply_message, request_messages, turn_of
from claw_r1.datapool.view.token_lines import TokenLine
from claw_r1.schemas.arrays import ITEM_BYTES, count, unpack_floats, unpack_ids
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.json_values import JsonDict

TOKENS_MAX = 20_000
"""The most tokens of one reply."""
CHARACTERS_MAX = 200_000
"""The most characters in the messages of one reply."""
FLOAT_MAX = 3.4e38
NO_IDS = "No token ids of this call were captured (its server gave none), or they are cut: these are its messages."
BROKEN = "The prompt cannot be put together, because a call that it is written against is missing or another: this is the response."
routes = APIRouter(prefix="/api/v1", tags=["tokens"])
BatchName = tuple[str | None, int | None]
"""Run and sequence."""


async def _vocabularies(request: Request) -> Vocabularies:
    vocabularies: Vocabularies = request.app.state.vocabularies
    return vocabularies


Tokenizers = Annotated[Vocabularies, Depends(_vocabularies)]
LastCall = Annotated[
    str | None, Query(alias="c", min_length=1, max_length=512, description="call_id; default: the last")
]
First = Annotated[int | None, Query(alias="from", ge=0, description="first token; default: 20,000 before `to`")]
Behind = Annotated[int | None, Query(alias="to", ge=0, description="one past the last token; default: the end")]
OfRun = Annotated[str | None, Query(max_length=512, description="of which run's batch; default: the last that has it")]
OfBatch = Annotated[int | None, Query(ge=0, description="the batch's sequence; default: the last")]


@routes.get("/tokens", summary="Tokens [from, to) of a call's prompt and response as columns; at most 20,000.")
def tokens(
    source: Source, tokenizers: Tokenizers, _: Looking, g: GroupId, t: TrajectoryIdQuery,
    c: LastCall = None, start: First = None, end: Behind = None, run: OfRun = None, batch: OfBatch = None,
) -> Response:  # fmt: skip
    """`note`: why there is no text or id, and the remedy. Ranges and places are of the line: prompt, then response."""
    trajectory = trajectory_of(source, g, t)
    call_id = c or next(reversed(trajectory.calls), None)
    if call_id not in trajectory.calls:
        raise PageProblem(404, f"trajectory {t} has no captured call {call_id or 'yet'}")
    line = TokenLines(source, trajectory).of(call_id)
    answer = {"g": g, "t": t, "c": call_id, **_neighbours(trajectory, call_id)}
    if line is None:
        return SafeJson({**answer, "length": 0, "note": NO_IDS})
    first, behind = _bounds(len(line.ids) // ITEM_BYTES, start, end)
    columns, text = _columns(line, first, behind), _text(source, tokenizers, line, first, behind)
    training = _training(source, line, trajectory, first, behind, (run, batch))
    return SafeJson({**answer, **columns, **text, **training})


@routes.get("/tokens/messages", summary="The messages of a call's request and reply, where its tokens have no text.")
def messages(source: Source, _: Looking, g: GroupId, t: TrajectoryIdQuery, c: CallIdQuery) -> Response:
    """The last 200,000 characters of them."""
    trajectory = trajectory_of(source, g, t)
    fact = call_fact(source, trajectory, c)
    bodies = CallBodies.of(fact, request_body(source, trajectory, fact) or b"")
    reply = reply_message(bodies)
    turns = [turn_of(each) for each in [*(request_messages(bodies) or ()), *([reply] if reply else [])]]
    kept: list[JsonDict] = []
    room = CHARACTERS_MAX
    for turn in reversed(turns):
        if room <= 0:
            break
        content, reasoning = turn["content"], turn["reasoning"] or ""
        kept.append(
            {**turn, "content": _tail(content, room), "reasoning": _tail(reasoning, room - len(content)) or None}
        )
        room -= len(content) + len(reasoning)
    return SafeJson({"messages": kept[::-1], "cut": room < 0 or len(kept) < len(turns)})


def _tail(text: str, room: int) -> str:
    return text[max(0, len(text) - max(0, room)) :]


def _neighbours(trajectory: TrajectoryRecord, call_id: str) -> JsonDict:
    calls = trajectory.calls
    place = calls.index(call_id)
    return {
        "call": place,
        "calls": len(calls),
        "previous": calls[place - 1] if place else None,
        "next": calls[place + 1] if place + 1 < len(calls) else None,
    }


def _bounds(length: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Returns the bounds of a range that exists and is not too long; one that is asked for from its start keeps that."""
    if start is None:
        behind = min(length, length if end is None else end)
        return max(0, behind - TOKENS_MAX), behind
    first = min(start, length)
    return first, max(first, min(length, length if end is None else end, first + TOKENS_MAX))


def _columns(line: TokenLine, first: int, behind: int) -> JsonDict:
    """`logprobs`: null where the token was not sampled, or unknown; infinity is a number beyond float32."""
    logprobs: list[float | None] = [None] * (behind - first)
    for stretch in line.stretches:
        low, high = max(first, stretch.start), min(behind, stretch.end)
        if low < high and len(stretch.call.response_logprobs) == len(stretch.call.response_ids):
            packed = stretch.call.response_logprobs[(low - stretch.start) * 4 : (high - stretch.start) * 4]
            logprobs[low - first : high - first] = map(finite_logprob, unpack_floats(packed))
    return {
        "length": count(line.ids),
        "prompt_length": line.prompt_length,
        "from": first,
        "to": behind,
        "ids": unpack_ids(line.ids[first * ITEM_BYTES : behind * ITEM_BYTES]),
        "logprobs": logprobs,
    }


def finite_logprob(logprob: float) -> float | None:
    """Rounds a log-probability to what JSON can hold: null for NaN, infinity as a number beyond float32."""
    return None if math.isnan(logprob) else round(max(-FLOAT_MAX, min(FLOAT_MAX, logprob)), 5)


def _text(source: DashboardSource, tokenizers: Vocabularies, line: TokenLine, first: int, behind: int) -> JsonDict:
    """`pieces` as `tokens.pieces` has them, or null; `characters`: [first, last, character] that several tokens make."""
    low = max(0, first - CONTEXT)
    ids = unpack_ids(line.ids[low * ITEM_BYTES : (behind + CONTEXT) * ITEM_BYTES])
    names, model = sampling_runs(line.stretches), line.stretches[-1].step.model_id if line.stretches else ""
    broken = BROKEN if line.broken else ""
    try:
        vocabulary = tokenizers.of(source.ask_runs(lambda state: candidates(state.runs, names, model)))
        whole = pieces_of([vocabulary.token(each) for each in ids])
    except NoTokenizer as why:
        return {"pieces": None, "characters": [], "special": [], "note": f"{broken} No text: {why}.".strip()}
    return {
        "pieces": whole.pieces[first - low : behind - low],
        "characters": [
            (a + low, b + low, each) for a, b, each in whole.characters if a + low < behind and b + low >= first
        ],
        "special": sorted({each for each in ids if vocabulary.is_special(each)}),
        "tokenizer": str(vocabulary.folder),
        "note": broken or None,
    }


def _training(
    source: DashboardSource,
    line: TokenLine,
    trajectory: TrajectoryRecord,
    first: int,
    behind: int,
    batch_name: BatchName,
) -> JsonDict:
    """`sampled`: by call, in order, what of the range was sampled; `trained` in it are places of the line."""
    g, t = trajectory.group_id, trajectory.trajectory_id
    within = [stretch for stretch in line.stretches if stretch.start < behind and stretch.end > first]

    def answer(state: RunsState) -> JsonDict:
        batch = chosen_batch(state.index, g, *batch_name)
        return {
            "batches": batches(state.index, g, t),
            "batch": None if batch is None else [batch.run_id, batch.sequence],
            "sampled": [stretch_json(stretch, batch) for stretch in within],
        }

    return {**source.ask_runs(answer), "return": trajectory.return_total}
