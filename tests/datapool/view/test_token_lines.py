"""Which tokens of a line were sampled by which call, whatever edges its prompt came by."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.token_lines import TokenLine, token_line
from claw_r1.schemas.arrays import pack_ids, unpack_ids
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured, Edge
from tests import facts


def call(
    name: str, number: int, whole: Sequence[int], reply: Sequence[int], base: str | None = None, keep: int = 0
) -> CallCaptured:
    packed = pack_ids(list(whole))
    edge = Edge(
        base_call_id=base, keep=keep, suffix=packed[4 * keep :], full_length=len(whole), full_digest=hashlib.sha256(packed).hexdigest()
    )  # fmt: skip
    return facts.call("g", "t", name, ids=tuple(reply), prompt=edge, received_us=number)


def lines(*calls: CallCaptured) -> Mapping[str, TokenLine | None]:
    """The line of each call, in a pool that holds all of them."""
    rows, state = PoolRows(), None
    for event, place in facts.placed(calls):
        state = fold(state, event, place)
    assert state is not None
    for key, row in project(state).items():
        rows.apply(key.topic, key.key, encode(row))
    trajectory = rows.trajectory("g", "t")
    assert trajectory is not None
    captures = {each.call_id: each for each in calls}
    return {name: token_line(name, trajectory.calls, captures.get, partial(rows.step, "g", "t")) for name in captures}


def sampled(line: TokenLine | None) -> list[tuple[str, list[int]]]:
    assert line is not None
    ids = unpack_ids(line.ids)
    for stretch in line.stretches:
        own = unpack_ids(stretch.call.response_ids)
        assert ids[stretch.start : stretch.end] == own[: stretch.end - stretch.start]
    return [(stretch.step.call_id, ids[stretch.start : stretch.end]) for stretch in line.stretches]


def test_replies_are_known_again_in_the_prompts_that_repeat_them() -> None:
    """By an edge, by an edge on an edge, by a prompt in full, and the part that is kept of one."""
    first = call("a", 1, [1, 2], [10, 11])
    second = call("b", 2, [1, 2, 10, 11, 3], [12, 13], "a", 4)
    in_full = call("c", 3, [1, 2, 10, 11, 3, 12, 13, 4], [14])
    in_part = call("d", 4, [1, 2, 10, 11, 3, 12, 9], [15], "c", 6)
    other = call("e", 5, [7, 7], [16])
    answer = lines(first, second, in_full, in_part, other)
    assert sampled(answer["a"]) == [("a", [10, 11])]
    assert sampled(answer["b"]) == [("a", [10, 11]), ("b", [12, 13])]
    assert sampled(answer["c"]) == [("a", [10, 11]), ("b", [12, 13]), ("c", [14])]
    assert sampled(answer["d"]) == [("a", [10, 11]), ("b", [12]), ("d", [15])]
    assert sampled(answer["e"]) == [("e", [16])]


def test_without_a_base_the_reply_is_there() -> None:
    """A prompt that cannot be put together is none, and says so."""
    answer = lines(call("a", 1, [1, 2], [10]), call("b", 2, [1, 2, 10, 3], [12, 13], "gone", 3))["b"]
    assert answer is not None
    assert answer.broken
    assert (unpack_ids(answer.ids), answer.prompt_length) == ([12, 13], 0)
    assert sampled(answer) == [("b", [12, 13])]


def test_a_circle_of_edges_ends() -> None:
    answer = lines(call("a", 1, [1, 2], [10], "b", 1), call("b", 2, [1, 3], [12], "a", 1))
    assert answer["a"] is not None
    assert answer["a"].broken


def test_cut_ids_make_no_line_and_are_no_base() -> None:
    """A call with such is a usable fact: no page of its trajectory may break at it."""
    cut = replace(call("b", 2, [1, 2, 10, 3], [11], "a", 3), response_ids=b"\1\0\0\0\0")
    answer = lines(call("a", 1, [1, 2], [10]), cut, call("c", 3, [1, 2, 10, 3, 4], [12], "b", 4))
    assert answer["b"] is None
    assert sampled(answer["a"]) == [("a", [10])]
    assert answer["c"] is not None
    assert answer["c"].broken
