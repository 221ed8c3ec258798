"""Token forest: what a trajectory trains, and on what context."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.batch.sequences import UNKNOWN_VERSION, CallTokens, TrainingRow, rows
from claw_r1.datapool.delta_decoding import resolve
from claw_r1.datapool.errors import PromptBroken
from claw_r1.schemas.arrays import ITEM_BYTES, pack_ids
from claw_r1.schemas.events import Edge


def call(
    call_id: str, prompt: list[int], response: list[int], temperature: float = 1.0, version: int = 0
) -> CallTokens:
    """A call whose log-probability of token t is -t."""
    return CallTokens(
        call_id=call_id,
        prompt=pack_ids(prompt),
        response=pack_ids(response),
        logprobs=[-float(token) for token in response],
        versions=[version] * len(response),
        temperature=temperature,
    )


def trained_ids(row: TrainingRow) -> list[int]:
    return [token for token, kept in zip(row.ids, row.mask, strict=True) if kept]


def test_calls_that_extend_each_other_are_one_row_with_a_mask() -> None:
    """A prompt that begins with the whole call before it continues its row; what the tool said is masked."""
    (row,) = rows([call("a", [1, 2], [3, 4]), call("b", [1, 2, 3, 4, 5, 6], [7])], trajectory=9)
    assert list(row.ids) == [1, 2, 3, 4, 5, 6, 7]
    assert list(row.mask) == [0, 0, 1, 1, 0, 0, 1]
    assert list(row.logprobs) == [0, 0, -3, -4, 0, 0, -7]
    assert row.trajectory == 9
    assert row.call_ids == ("a", "b")


def test_temperature_and_version_are_those_of_each_call() -> None:
    """Per-token arrays carry each call's own temperature and version; context has 1 and none."""
    (row,) = rows([call("a", [1], [2], 0.5, version=3), call("b", [1, 2, 5], [6, 7], 2.0, version=4)], 0)
    assert list(row.temperatures) == [1.0, 0.5, 1.0, 2.0, 2.0]
    assert list(row.versions) == [UNKNOWN_VERSION, 3, UNKNOWN_VERSION, 4, 4]


def test_one_changed_id_forks() -> None:
    """A prompt that differs from the earlier call in one id is a row of its own."""
    made = rows([call("a", [1, 2], [3, 4]), call("b", [1, 2, 3, 9, 5], [7])], 0)
    assert [list(row.ids) for row in made] == [[1, 2, 3, 4], [1, 2, 3, 9, 5, 7]]
    assert [trained_ids(row) for row in made] == [[3, 4], [7]]


def test_siblings_repeat_the_shared_part_as_masked_context() -> None:
    """Where two calls continue the same one, its response is trained in the first row only."""
    made = rows([call("a", [1], [2]), call("b", [1, 2, 3], [4]), call("c", [1, 2, 5], [6])], 0)
    assert [list(row.ids) for row in made] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert [trained_ids(row) for row in made] == [[2, 4], [6]]


def test_two_choices_of_one_prompt_are_two_rows() -> None:
    """Equal prompts, even with equal responses, are separate samples, each trained."""
    made = rows([call("a", [1], [2, 3]), call("a.1", [1], [2, 3])], 0)
    assert [trained_ids(row) for row in made] == [[2, 3], [2, 3]]


def test_a_prompt_that_begins_with_a_prompt_only_does_not_continue_it() -> None:
    """Continuing needs the response too: prompts that merely share a beginning fork."""
    made = rows([call("a", [1, 2], [3]), call("b", [1, 2, 4], [5])], 0)
    assert len(made) == 2


def test_an_empty_response_trains_nothing() -> None:
    """A call without tokens makes no row, and does not hide the calls around it."""
    assert rows([call("a", [1, 2], [])], 0) == []
    made = rows([call("a", [1], [2]), call("b", [1, 2, 3], [])], 0)
    assert [list(row.ids) for row in made] == [[1, 2]]


def test_unequal_lengths_are_refused() -> None:
    """A response with a log-probability too few never reaches training."""
    broken = CallTokens("a", pack_ids([1]), pack_ids([2, 3]), [-1.0], [0, 0], 1.0)
    with pytest.raises(ValueError, match="call a"):
        rows([broken], 0)


@st.composite
def forests(draw: st.DrawFn) -> list[CallTokens]:
    """Calls that continue, fork, repeat and rewrite each other, over few ids, so that prefixes meet by chance too; in any order."""
    ids = st.lists(st.integers(0, 2), max_size=3)
    calls: list[CallTokens] = []
    for number in range(draw(st.integers(0, 8))):
        base = draw(st.sampled_from(calls)) if calls and draw(st.booleans()) else None
        prompt = (base.whole if base else b"") + pack_ids(draw(ids))
        response = draw(ids)
        made = call(f"c{number}", [], response, draw(st.sampled_from([0.5, 1.0])), draw(st.integers(0, 3)))
        calls.append(CallTokens(made.call_id, prompt, made.response, made.logprobs, made.versions, made.temperature))
    return draw(st.permutations(calls))


@given(forests())
def test_every_response_is_trained_once_after_its_own_prompt(calls: list[CallTokens]) -> None:
    """For any forest: each non-empty response is in exactly one row, at its place, after exactly its prompt's ids."""
    made = rows(calls, 0)
    by_id = {one.call_id: one for one in calls}
    assert Counter(name for row in made for name in row.call_ids) == Counter(c.call_id for c in calls if c.response)
    for row in made:
        packed = pack_ids(row.ids)
        places: set[int] = set()
        for name in row.call_ids:
            one = by_id[name]
            assert packed.startswith(one.whole)
            start, end = len(one.prompt) // 4, len(one.whole) // 4
            assert list(row.logprobs[start:end]) == list(one.logprobs)
            assert list(row.versions[start:end]) == list(one.versions)
            assert set(row.temperatures[start:end]) == {one.temperature}
            assert places.isdisjoint(range(start, end))
            places |= set(range(start, end))
        assert {at for at, kept in enumerate(row.mask) if kept} == places


@given(forests(), st.data())
def test_masked_calls_change_no_row(calls: list[CallTokens], data: st.DataObject) -> None:
    """Leaving a call out changes the rows of the others in nothing but its own mask."""
    if not calls:
        return
    dropped = data.draw(st.sampled_from(calls))
    kept = [one for one in calls if one is not dropped]
    trained = {name: (list(row.ids)) for row in rows(kept, 0) for name in row.call_ids}
    for one in kept:
        if one.response:
            assert pack_ids(trained[one.call_id]).startswith(one.whole)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=3)),
        min_size=1,
        max_size=6,
    )
)
def test_a_chain_is_one_row_however_long(turns: list[tuple[list[int], list[int]]]) -> None:
    """A conversation that only grows is a single row, and no token of it is repeated."""
    calls: list[CallTokens] = []
    for number, (observed, said) in enumerate(turns):
        before = calls[-1].whole if calls else b""
        one = call(f"c{number}", [], said)
        calls.append(
            CallTokens(one.call_id, before + pack_ids(observed), one.response, one.logprobs, one.versions, 1.0)
        )
    (row,) = rows(calls, 0)
    assert len(row) == sum(len(observed) + len(said) for observed, said in turns)
    assert row.trained_tokens == sum(len(said) for _, said in turns)


def edge(keep: int, suffix: list[int], whole: list[int], base: str | None = "b") -> Edge:
    digest = hashlib.sha256(pack_ids(whole)).hexdigest()
    return Edge(base_call_id=base, keep=keep, suffix=pack_ids(suffix), full_length=len(whole), full_digest=digest)


def test_a_prompt_is_put_together_from_its_edge() -> None:
    """The first `keep` ids of the base, then the suffix."""
    assert resolve(edge(2, [9], [1, 2, 9]), pack_ids([1, 2, 3]), ITEM_BYTES) == pack_ids([1, 2, 9])
    assert resolve(edge(0, [1, 2], [1, 2], base=None), None, ITEM_BYTES) == pack_ids([1, 2])


def test_a_broken_chain_is_refused() -> None:
    """A base that is missing, or other ids than were digested, is an error and never training data."""
    with pytest.raises(PromptBroken):
        resolve(edge(2, [9], [1, 2, 9]), None, ITEM_BYTES)
    with pytest.raises(PromptBroken):
        resolve(edge(2, [9], [1, 2, 9]), pack_ids([1, 5, 3]), ITEM_BYTES)
