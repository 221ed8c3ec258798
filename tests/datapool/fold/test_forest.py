"""The forest on its way through the pool: prompts written as deltas, folded, and put together again from the rows."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_r1.datapool.batch.sequences import CallTokens, rows
from claw_r1.datapool.delta_decoding import prompts, resolve
from claw_r1.datapool.digests import call_digest
from claw_r1.datapool.fold import forest
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.schemas.arrays import ITEM_BYTES, pack_floats, pack_ids, unpack_floats
from claw_r1.schemas.codec import decode, encode
from claw_r1.schemas.events import CallCaptured, Edge, StepRecord, TrajectoryRecord, VersionSpan
from tests import facts
from tests.deltas import delta


@st.composite
def conversations(draw: st.DrawFn, least: int = 1) -> list[CallCaptured]:
    """Calls of one trajectory with prompts as deltas: continued, forked, rewritten, cut off in mid-text, under any clock."""
    ids = st.lists(st.integers(0, 2) | st.just(2**31 - 1), max_size=3)
    wholes: dict[str, bytes] = {}
    made: dict[str | None, CallCaptured] = {}
    calls: list[CallCaptured] = []
    for number in range(draw(st.integers(least, 9))):
        start = draw(st.sampled_from([b"", *wholes.values()]))
        prompt = start[: 4 * draw(st.integers(0, len(start) // 4))] if draw(st.booleans()) else start
        prompt += pack_ids(draw(ids))
        response = draw(ids)
        name = f"c{number}"
        edge = delta(prompt, wholes)
        calls.append(
            facts.call(
                call_id=name,
                received_us=draw(st.integers(0, 9)),
                prompt=edge,
                base_digest=against(made.get(edge.base_call_id), edge),
                ids=tuple(response),
                spans=(VersionSpan(run_id="run", version=3, start=0, end=len(response)),) if response else (),
                response_body=draw(st.binary(max_size=4)),
                finish_reason=draw(st.sampled_from(["stop", "length"])),
            )
        )
        wholes[name] = prompt + pack_ids(response)
        made[name] = calls[-1]
    return calls


def against(base: CallCaptured | None, edge: Edge) -> str:
    return "" if base is None else facts.written_against(base, edge.keep)


def pooled(calls: list[CallCaptured]) -> tuple[dict[str, StepRecord], TrajectoryRecord]:
    state = None
    for fact, position in facts.placed(calls):
        state = fold(state, fact, position)
    records = project(state).values()
    (trajectory,) = [one for one in records if isinstance(one, TrajectoryRecord)]
    return {one.call_id: one for one in records if isinstance(one, StepRecord)}, trajectory


def put_together(calls: list[CallCaptured], steps: dict[str, StepRecord]) -> dict[str, CallTokens]:
    """From the wire bytes of the facts, as a reader does; each step has the digest of what its fact holds."""
    made: dict[str, CallTokens] = {}
    for call in calls:
        row = decode(encode(call))
        assert isinstance(row, CallCaptured)
        assert call_digest(row) == steps[call.call_id].digest
        base = made.get(row.prompt.base_call_id or "")
        logprobs = unpack_floats(row.response_logprobs)
        prompt = resolve(row.prompt, base.whole if base else None, ITEM_BYTES)
        made[call.call_id] = CallTokens(
            call.call_id, prompt, row.response_ids, logprobs, [3] * len(logprobs), temperature=1.0
        )
    return made


@given(conversations(), st.randoms(use_true_random=False))
def test_a_forest_written_as_deltas_trains_each_response_once(calls: list[CallCaptured], random: object) -> None:
    """Whatever order the facts came in, every chain is whole, and each response is in one row, after its own prompt."""
    shuffled = random.sample(calls, len(calls))
    steps, trajectory = pooled(shuffled)
    assert all("parent_missing" not in step.reasons for step in steps.values())
    ready = put_together(calls, steps)
    made = rows([ready[name] for name in trajectory.calls], 0)
    trained = Counter(name for row in made for name in row.call_ids)
    assert trained == Counter(call.call_id for call in calls if call.response_ids)
    assert all(pack_ids(row.ids).startswith(ready[name].whole) for row in made for name in row.call_ids)
    assert len(made) <= trajectory.branches <= len(calls)


@given(conversations(least=2), st.data())
def test_without_one_call_exactly_its_descendants_lack_a_parent(calls: list[CallCaptured], data: st.DataObject) -> None:
    """A lost base breaks the chains over it and no other."""
    lost = data.draw(st.sampled_from(calls)).call_id
    broken = {lost}
    for call in calls:
        if call.prompt.base_call_id in broken:
            broken.add(call.call_id)
    steps, _ = pooled([call for call in calls if call.call_id != lost])
    assert {name for name, step in steps.items() if "parent_missing" in step.reasons} == broken - {lost}


def chain(turns: int) -> list[CallCaptured]:
    """A conversation that only grows."""
    wholes: dict[str, bytes] = {}
    calls = []
    for turn in range(turns):
        prompt = (wholes[f"c{turn - 1}"] if turn else b"") + pack_ids([turn, turn])
        edge = delta(prompt, wholes)
        base_digest = against(calls[-1] if turn else None, edge)
        calls.append(
            facts.call(call_id=f"c{turn}", received_us=turn, prompt=edge, base_digest=base_digest, ids=(7, turn, 9))
        )
        wholes[f"c{turn}"] = prompt + pack_ids((7, turn, 9))
    return calls


def test_a_chain_is_one_branch_and_each_fork_adds_one() -> None:
    """A conversation that grows is one line; a second continuation of the same call is another, a new prompt too."""
    calls = chain(5)
    assert pooled(calls)[1].branches == 1
    fork = facts.call(call_id="fork", prompt=calls[3].prompt, received_us=9)
    fresh = facts.call(call_id="fresh", received_us=10)
    assert pooled([*calls, fork])[1].branches == 2
    assert pooled([*calls, fork, fresh])[1].branches == 3


def test_an_edge_that_keeps_more_than_its_base_has_is_a_broken_chain() -> None:
    """Another attempt of the base counts now, and it was shorter."""
    base, child = chain(2)
    short = facts.call(call_id="c0", attempt=1, prompt=base.prompt, ids=(7,))
    child = replace(child, base_digest=against(short, child.prompt))
    steps, _ = pooled([base, short, child])
    assert (steps["c0"].trainable, steps["c1"].reasons) == (True, ("parent_missing",))


def test_a_base_of_another_content_is_a_broken_chain() -> None:
    """Lengths fit, ids do not: whoever put the prompt together would be refused, and a run would stop on its plan."""
    base, child, grandchild = chain(3)
    other = facts.call(call_id="c0", attempt=1, prompt=base.prompt, ids=(8, 8, 8))
    steps, trajectory = pooled([base, other, child, grandchild])
    assert (steps["c0"].attempt, steps["c0"].trainable) == (1, True)
    assert {steps[name].reasons for name in ("c1", "c2")} == {("parent_missing",)}
    assert trajectory.trainable_calls == 1
    unsaid = replace(child, base_digest="")
    assert pooled([base, unsaid])[0]["c1"].reasons == ("parent_missing",)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"prompt": Edge(suffix=pack_ids([0, 0]), full_length=2, full_digest="another")},
        {"response_ids": b"1234567890123", "response_logprobs": b"1234567890123"},
    ],
    ids=["prompt_mismatch", "ids_malformed"],
)
def test_a_base_that_nobody_can_read_breaks_its_chain(spoilt: dict[str, object]) -> None:
    """Named rightly, and still of no use: its own ids are broken."""
    base, child, grandchild = chain(3)
    useless = facts.call(**{"call_id": "c0", "prompt": base.prompt, **spoilt})
    child = replace(child, base_digest=against(useless, child.prompt))
    grandchild = replace(grandchild, base_digest=against(child, grandchild.prompt))
    steps, _ = pooled([useless, child, grandchild])
    assert {steps[name].reasons for name in ("c1", "c2")} == {("parent_missing",)}


def test_a_clock_that_goes_back_breaks_no_chain() -> None:
    """A base is known by its digest, not by when it was received: no clock decides what is trained."""
    calls = [replace(one, timings=replace(one.timings, received_us=9 - turn)) for turn, one in enumerate(chain(4))]
    steps, trajectory = pooled(calls)
    assert trajectory.calls == ("c3", "c2", "c1", "c0")
    assert (trajectory.trainable_calls, trajectory.branches) == (4, 1)
    (row,) = rows([put_together(calls, steps)[name] for name in trajectory.calls], 0)
    assert row.call_ids == ("c0", "c1", "c2", "c3")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_calls_that_are_written_against_each_other_are_broken_chains(length: int) -> None:
    """Digests can be right all around a circle, since each is of the whole prompt; no ids are anywhere in it."""
    nothing = Edge(base_call_id="c0", suffix=b"", full_length=1, keep=1, full_digest="")
    names = [f"c{n}" for n in range(length)]
    circle = [
        facts.call(call_id=name, prompt=replace(nothing, base_call_id=base))
        for name, base in zip(names, [*names[1:], names[0]], strict=True)
    ]
    digest = against(circle[0], circle[0].prompt)
    assert all(against(one, one.prompt) == digest for one in circle)
    steps, _ = pooled([replace(one, base_digest=digest) for one in circle])
    assert {step.reasons for step in steps.values()} == {("parent_missing",)}


def test_a_line_ends_where_another_attempt_of_its_base_counts() -> None:
    """As long as the base, and still not its ids: what was continued is not there any more."""
    base, child = chain(2)
    other = facts.call(call_id="c0", attempt=1, prompt=base.prompt, ids=(8, 8, 8))
    assert pooled([base, child])[1].branches == 1
    assert pooled([base, other, child])[1].branches == 2


@given(conversations(least=2), st.data())
def test_what_the_pool_calls_whole_a_reader_puts_together(calls: list[CallCaptured], data: st.DataObject) -> None:
    """Whatever attempts of whatever content came in between: a chain that is known ends in the prompt that was digested."""
    ids = st.lists(st.integers(0, 2), max_size=3)
    noise = [
        replace(
            one,
            attempt=1,
            prompt=data.draw(st.sampled_from([one.prompt, facts.edge(data.draw(ids))])),
            response_ids=pack_ids(response),
            response_logprobs=pack_floats([-1.0] * len(response)),
            timings=replace(one.timings, received_us=data.draw(st.integers(0, 9))),
        )
        for one in calls
        if (response := data.draw(st.none() | ids)) is not None
    ]
    steps, _ = pooled(data.draw(st.permutations([*calls, *noise])))
    known = {name for name, step in steps.items() if "parent_missing" not in step.reasons}
    counting = {(one.call_id, one.attempt): one for one in [*calls, *noise]}
    read = prompts({name: counting[name, step.attempt] for name, step in steps.items()})
    assert known <= read.keys()


def test_a_prompt_with_another_digest_is_no_prompt() -> None:
    """Ids that are not those that were digested are never trained."""
    broken = facts.call(prompt=Edge(suffix=pack_ids([1]), full_length=1, full_digest=""))
    assert pooled([broken])[0]["c"].reasons == ("prompt_mismatch",)


def test_ids_survive_bytes_that_are_no_text_and_an_output_cut_in_a_character() -> None:
    """Ids and bodies are bytes all the way: half a character changes nothing."""
    call = facts.call(ids=(2**31 - 1, 0, 5), response_body=b"\xf0\x9f\xff{", finish_reason="length")
    (step,) = pooled([call])[0].values()
    assert (step.trainable, step.finish_reason) == (True, "length")
    assert decode(encode(call)) == call


def test_chains_longer_than_the_interpreters_stack_are_followed() -> None:
    """A trajectory of thousands of calls is walked, not recursed into."""
    captures = {
        f"c{n:04d}": StepRecord(
            group_id="g",
            trajectory_id="t",
            call_id=f"c{n:04d}",
            prompt_length=2,
            base_call_id=f"c{n - 1:04d}" if n else None,
        )
        for n in range(5000)
    }
    grown = forest.grown(forest.Forest(), lambda _: None, captures.get, captures)
    assert len(grown.continued) == 0  # none of these keeps what its base has
    whole = forest.whole_chains(grown, captures.get, captures, lambda _: False)
    assert whole == dict.fromkeys(captures, True)
