"""The token forest of a trajectory as training rows.

Invariant: each trained response is trained exactly once, under exactly the ids that it was sampled after. A call whose
prompt begins with all ids of another call (its prompt and its response) continues it and shares its row; where two
calls continue the same one, the forest forks and the second row repeats the shared part as masked context. Calls that
were rewritten by the agent (a summary, a dropped turn) are roots of their own. Ids are compared, text never.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import CallCaptured

UNKNOWN_VERSION = -1


@dataclass(frozen=True, slots=True)
class CallTokens:
    """One call: packed prompt ids, packed response ids, and per response token its log-probability and version."""

    call_id: str
    prompt: bytes
    response: bytes
    logprobs: Sequence[float]
    versions: Sequence[int]
    temperature: float
    advantage: float | None = None
    """The advantage of this response alone, where calls of a trajectory differ."""
    oldest_version: int | None = None
    """Tokens of older versions are context only; None: all are trained."""
    is_rendered: bool = False
    """Its server gave no ids: these are made of its messages."""

    @property
    def whole(self) -> bytes:
        """Packed ids of prompt and response."""
        return self.prompt + self.response


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One sequence of n tokens; all arrays have length n.

    `mask` is 1 where the token is trained; elsewhere logprobs are 0, temperatures 1 and versions UNKNOWN_VERSION.
    `trajectory` is the index that the caller gave: of the advantage, for example. `call_ids`: whose responses it trains.
    """

    trajectory: int
    call_ids: tuple[str, ...]
    ids: array  # type: ignore[type-arg]  # array of int32; array[int] is no run-time type
    mask: bytearray
    logprobs: array  # type: ignore[type-arg]  # of float32
    temperatures: array  # type: ignore[type-arg]  # of float32
    versions: array  # type: ignore[type-arg]  # of int64
    advantages: array | None = None  # type: ignore[type-arg]  # of float32, 0 where nothing is trained; None: the trajectory's
    responses: tuple[tuple[int, int], ...] = ()
    """[start, end) of each call's response, in order."""
    rendered_calls: tuple[str, ...] = ()
    """The calls among `call_ids` whose ids are rendered from messages."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def trained_tokens(self) -> int:
        return sum(self.mask)


def call_tokens(
    source: CallCaptured,
    prompt: bytes,
    run_id: str,
    temperature: float,
    advantage: float | None = None,
    oldest_version: int | None = None,
) -> CallTokens:
    """A call as `sequences.rows` takes it. Versions of another run are no versions here; unknown log-probabilities are 0."""
    n = len(source.response_ids) // ITEM_BYTES
    versions = array("q")
    for span in source.spans:
        version = span.version if span.run_id == run_id else UNKNOWN_VERSION
        versions += array("q", [version]) * (span.end - span.start)
    if len(versions) != n:  # nobody knows who sampled it: it can only be imitated
        versions = array("q", [UNKNOWN_VERSION]) * n
    logprobs = array("f", source.response_logprobs) if len(source.response_logprobs) == ITEM_BYTES * n else [0.0] * n
    return CallTokens(
        call_id=source.call_id,
        prompt=prompt,
        response=source.response_ids,
        logprobs=logprobs,
        versions=versions,
        temperature=temperature,
        advantage=advantage,
        oldest_version=oldest_version,
    )


def rendered_tokens(call_id: str, prompt: bytes, response: bytes, advantage: float | None = None) -> CallTokens:
    """A call known by messages only, with ids rendered from them: of no version, at temperature 1."""
    n = len(response) // ITEM_BYTES
    return CallTokens(
        call_id=call_id,
        prompt=prompt,
        response=response,
        logprobs=[0.0] * n,
        versions=[UNKNOWN_VERSION] * n,
        temperature=1.0,
        advantage=advantage,
        is_rendered=True,
    )


def rows(calls: Sequence[CallTokens], trajectory: int) -> list[TrainingRow]:
    """Training rows of the trained calls of one trajectory, given in order.

    Masked calls need not be given: their ids stand in the prompts of the calls after them, and "begins
    with" is transitive, so leaving them out changes no row. An empty response trains nothing and makes no row.
    """
    if len(calls) == 1:  # the most frequent forest
        return [_row(calls, trajectory)] if calls[0].response else []
    parents = _parents(calls)
    inner = {parent for parent in parents if parent is not None}
    in_rows: set[int] = set()
    training_rows: list[TrainingRow] = []
    for leaf in range(len(calls)):
        if leaf in inner:
            continue
        fresh = [node for node in _path(parents, leaf) if node not in in_rows and calls[node].response]
        in_rows.update(fresh)
        if fresh:
            training_rows.append(_row([calls[node] for node in fresh], trajectory))
    return training_rows


def _parents(calls: Sequence[CallTokens]) -> list[int | None]:
    """Per call the one that it continues: of those that its prompt begins with, the longest; of equals, the first.

    Found by length, not by the order of the calls: clocks made that, and a call is never shorter than what it continues.
    """
    wholes = [call.whole for call in calls]
    rising = sorted(range(len(calls)), key=lambda node: (len(wholes[node]), -node))
    parents: list[int | None] = [None] * len(calls)
    for place, node in enumerate(rising):
        shorter = reversed(rising[:place])
        parents[node] = next(
            (candidate for candidate in shorter if calls[node].prompt.startswith(wholes[candidate])), None
        )
    return parents


def _path(parents: Sequence[int | None], leaf: int) -> list[int]:
    """Nodes from the root to the leaf."""
    path: list[int] = []
    node: int | None = leaf
    while node is not None:
        path.append(node)
        node = parents[node]
    return path[::-1]


def _row(trained: Sequence[CallTokens], trajectory: int) -> TrainingRow:
    """Calls of one path, in order; the last one's ids contain all others, and later calls would train nothing."""
    ids = array("i")
    ids.frombytes(trained[-1].prompt)
    ids.frombytes(trained[-1].response)
    n = len(ids)
    row = TrainingRow(
        trajectory=trajectory,
        call_ids=tuple(call.call_id for call in trained),
        ids=ids,
        mask=bytearray(n),
        logprobs=array("f", bytes(4 * n)),
        temperatures=array("f", [1.0]) * n,
        versions=array("q", [UNKNOWN_VERSION]) * n,
        advantages=array("f", bytes(4 * n)) if trained[-1].advantage is not None else None,
        responses=tuple((len(call.prompt) // 4, len(call.whole) // 4) for call in trained),
        rendered_calls=tuple(call.call_id for call in trained if call.is_rendered),
    )
    for call in trained:
        _write(row, call)
    return row


def _write(row: TrainingRow, call: CallTokens) -> None:
    start = len(call.prompt) // 4
    length = len(call.response) // 4
    if not len(call.logprobs) == len(call.versions) == length:
        raise ValueError(
            f"call {call.call_id}: {length} tokens, {len(call.logprobs)} logprobs, {len(call.versions)} versions"
        )
    end = start + length
    row.mask[start:end] = b"\x01" * length
    row.logprobs[start:end] = array("f", call.logprobs)
    if call.temperature != 1.0:  # or it stands there already
        row.temperatures[start:end] = array("f", [call.temperature]) * length
    row.versions[start:end] = array("q", call.versions)
    if row.advantages is not None:
        row.advantages[start:end] = array("f", [call.advantage or 0.0]) * length
    if call.oldest_version is not None and min(call.versions, default=0) < call.oldest_version:
        _mask_older(row, start, end, call.oldest_version)


def _mask_older(row: TrainingRow, start: int, end: int, oldest_version: int) -> None:
    """Reverts the entries of tokens in [start, end) that an older version sampled."""
    for place in range(start, end):
        if row.versions[place] < oldest_version:
            row.mask[place], row.logprobs[place], row.temperatures[place] = 0, 0.0, 1.0
            row.versions[place] = UNKNOWN_VERSION
            if row.advantages is not None:
                row.advantages[place] = 0.0
