"""The bytes of a dataset are a function of the facts and their places, whatever order they were folded in."""

import hashlib
import re
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_r1.consumers.export.choose import FoldedGroup, choose
from claw_r1.consumers.export.rows import sequence_rows, step_rows
from claw_r1.consumers.export.tables import SEQUENCES, STEPS, TableWriter
from claw_r1.consumers.lineage.requests import questions
from claw_r1.datapool.batch.advantages import ESTIMATORS
from claw_r1.datapool.batch.candidates import with_members
from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.delta_decoding import prompts
from claw_r1.datapool.errors import UnusableFact
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.state import GroupState
from claw_r1.datapool.fold.validation import usable
from claw_r1.schemas.arrays import pack_ids
from claw_r1.schemas.events import CallCaptured, Edge, Event, FactPosition, Integrity
from tests import facts
from tests.consumers.published import chat_call, group

PAGE = Path(__file__).parents[3] / "docs" / "export.md"
Log = list[tuple[Event, FactPosition]]
LOOSE = BatchSpec(algorithm="sft", group_size=1, staleness_max=100)


def dataset(log: Log, spec: BatchSpec | None, out: Path) -> list[bytes]:
    """Both files of the groups of a log, made as the export makes them."""
    groups: dict[str, GroupState] = {}
    calls = {}
    for event, position in log:
        if isinstance(event, CallCaptured):
            calls[position] = event
        try:
            groups[event.group_id] = fold(groups.get(event.group_id), usable(event), position)
        except UnusableFact:
            continue
    writers = [TableWriter(out / f"{n}.parquet", schema) for n, schema in enumerate((STEPS, SEQUENCES))]
    for name in sorted(groups):
        found = choose(groups[name], spec)
        for chosen in [] if isinstance(found, str) else found:
            of_trajectory = {step.call_id: calls[step.position] for step in chosen.steps}
            for writer, rows in zip(writers, (step_rows, sequence_rows), strict=True):
                for row in rows(chosen, of_trajectory):
                    writer.write(row)
    for writer in writers:
        writer.close()
    return [(out / f"{n}.parquet").read_bytes() for n in range(2)]


@settings(max_examples=60, deadline=None)
@given(log=facts.logs(), spec=st.sampled_from([None, LOOSE]), data=st.data())
def test_equal_facts_give_equal_bytes(log: Log, spec: BatchSpec | None, data: st.DataObject) -> None:
    """Any order of folding, with repetitions, gives the same two files."""
    again = data.draw(st.permutations([*log, *data.draw(st.lists(st.sampled_from(log), max_size=5))]))
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        assert dataset(log, spec, Path(one)) == dataset(again, spec, Path(two))


@settings(max_examples=60, deadline=None)
@given(log=facts.logs())
def test_each_trainable_response_is_trained_once(log: Log) -> None:
    """Over all sequences of a dataset a call appears once, and the mask has as many ones as it has tokens."""
    with TemporaryDirectory() as out:
        dataset(log, None, Path(out))
        steps, sequences = (pq.read_table(Path(out) / f"{n}.parquet").to_pylist() for n in range(2))
    wanted = {(s["group_id"], s["trajectory_id"], s["call_id"]): len(s["response_ids"]) for s in steps if s["trained"]}
    found = [(s["group_id"], s["trajectory_id"], call_id) for s in sequences for call_id in s["call_ids"]]
    assert len(found) == len(set(found))
    assert set(found) == {ids for ids, length in wanted.items() if length}
    assert sum(sum(s["loss_mask"]) for s in sequences) == sum(wanted.values())


def test_a_response_without_the_engines_ids_is_in_no_sequence(tmp_path: Path) -> None:
    """Nor one whose prompt has none: it would be trained as if nobody had asked. The spec trains them by their messages."""
    bare = {"prompt": facts.edge(()), "response_logprobs": b"", "spans": ()}
    calls = [
        facts.call("g", "t", "c", ids=(), integrity=Integrity(complete=False, missing=("token_ids",)), **bare),
        facts.call("g", "t", "d", integrity=Integrity(complete=False, missing=("prompt_ids",)), **bare),
        facts.call("g", "t", "e"),
    ]
    events = [facts.started("g", "t"), *calls, facts.completed("g", "t", calls=3, reward=1.0)]
    log = [(event, FactPosition(topic="claw.calls", partition=0, offset=at)) for at, event in enumerate(events)]
    steps, sequences = tables(log, BatchSpec(preset="sft_logged"), tmp_path)
    assert [step["trained"] for step in steps] == [True] * 3
    assert [row["call_ids"] for row in sequences] == [["e"]]


def rewarded() -> Log:
    """A group of three that its agent names, with rewards of calls, of which the second goes on from the first."""
    told = group("g", [1.0, 0.25, 0.0])
    told = [
        replace(event, agent="walker", channel="train") if isinstance(event, CallCaptured) else event for event in told
    ]
    told += [facts.started("g", f"g-{n}", task=f'{{"n": {n}}}') for n in range(2)]
    of_calls = [facts.reward("g", f"g-{n}", 0.5 * n, call_id=f"g-{n}-{n % 2}", source="judge") for n in range(3)]
    return facts.placed([replace(told[0], task='"shared"'), *told[1:], *of_calls])


def tables(log: Log, spec: BatchSpec | None, out: Path) -> tuple[list[dict], list[dict]]:
    """Rows of steps and of sequences."""
    dataset(log, spec, out)
    return pq.read_table(out / "0.parquet").to_pylist(), pq.read_table(out / "1.parquet").to_pylist()


@pytest.mark.parametrize("algorithm", [name for name, row in ESTIMATORS.items() if not (row.over_batch or row.critic)])
def test_advantages_are_those_that_a_plan_would_freeze(algorithm: str, tmp_path: Path) -> None:
    """Per call in steps, per token in sequences: what a run with this spec would train its responses with."""
    log, spec = rewarded(), BatchSpec(algorithm=algorithm, group_size=3)
    state = None
    for event, position in log:
        state = fold(state, event, position)
    pool = FoldedGroup(state)
    chosen = with_members(pool, pool.record, spec)
    plan = assemble([chosen], spec, run_id="run", sequence=0, version=3, seed=0, envelope=facts.envelope())
    planned = {
        step.call_id: one.advantage if step.advantage is None else step.advantage
        for one in plan.trajectories
        for step in one.steps
    }
    steps, sequences = tables(log, spec, tmp_path)
    assert {step["call_id"]: step["advantage"] for step in steps} == planned
    assert len(planned) == 6
    for row in sequences:
        of_tokens = [value for call_id in row["call_ids"] for value in [planned[call_id]] * 2]
        assert [a for a, trained in zip(row["advantages"], row["loss_mask"], strict=True) if trained] == [
            *array("f", of_tokens)
        ]
        assert not any(a for a, trained in zip(row["advantages"], row["loss_mask"], strict=True) if not trained)


def test_what_is_not_trained_has_no_advantage(tmp_path: Path) -> None:
    """Context only, and who counts in the baseline only: null, so that nobody trains on it; the best one's is whole."""
    steps, sequences = tables(rewarded(), BatchSpec(group_size=3, best_of=1), tmp_path)
    assert (
        {step["trajectory_id"] for step in steps if step["advantage"] is not None}
        == {"g-0"}
        == {row["trajectory_id"] for row in sequences}
    )
    assert all((step["advantage"] is not None) == step["trained"] for step in steps)


@pytest.mark.parametrize(
    "spec", [None, BatchSpec(preset="reinforce_pp"), BatchSpec(preset="gae")], ids=["no_spec", "reinforce_pp", "gae"]
)
def test_where_a_dataset_has_no_baseline_there_is_no_advantage(spec: BatchSpec | None, tmp_path: Path) -> None:
    """Without a spec nobody says which; the baseline of REINFORCE++ is a batch, and GAE asks a critic: a dataset knows neither."""
    steps, sequences = tables(rewarded(), spec, tmp_path)
    assert (len(steps), len(sequences)) == (6, 3)
    assert {step["advantage"] for step in steps} == {None}
    assert all(row["advantages"] is None for row in sequences)


def test_under_stale_tokens_older_tokens_go_out_as_context(tmp_path: Path) -> None:
    """As a batch at the group's youngest token would have them: the first call of each is 9 versions older."""
    log = [
        (replace(event, spans=(replace(event.spans[0], version=0 if event.call_id.endswith("0") else 9),)), position)
        if isinstance(event, CallCaptured)
        else (event, position)
        for event, position in rewarded()
    ]
    steps, sequences = tables(log, BatchSpec(stale="tokens", group_size=3), tmp_path)
    assert {step["call_id"]: step["trained"] for step in steps} == {
        f"g-{n}-{k}": k == 1 for n in range(3) for k in range(2)
    }
    assert {row["call_ids"][0][-1] for row in sequences} == {"1"}
    by_group, _ = tables(log, BatchSpec(group_size=3), tmp_path)
    assert by_group == []


def test_a_sequence_says_whose_it_is_as_its_steps_do(tmp_path: Path) -> None:
    """Channel, agent and task stand in both tables, so that a sequence is told apart without a join."""
    steps, sequences = tables(rewarded(), None, tmp_path)
    by_call = {step["call_id"]: step for step in steps}
    for row in sequences:
        first = by_call[row["call_ids"][0]]
        assert [row[name] for name in ("channel", "agent", "task")] == [
            first[name] for name in ("channel", "agent", "task")
        ]
    assert [row["task"] for row in sequences] == ['{"n": 0}', '{"n": 1}', '"shared"']
    assert {(row["agent"], row["channel"]) for row in sequences} == {("walker", "train")}


@pytest.mark.parametrize(("table", "schema"), [("steps", STEPS), ("sequences", SEQUENCES)], ids=["steps", "sequences"])
def test_the_page_names_every_column(table: str, schema: pa.Schema) -> None:
    """The table of columns in docs/export.md, in the order of the file, is the schema."""
    section = PAGE.read_text().split(f"### Columns of `{table}.parquet`")[1].split("\n#")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(cells)) == schema.names


def test_row_groups_do_not_change_rows(tmp_path: Path) -> None:
    """A table larger than a row group reads back as it was written, nulls and empty lists told apart."""
    writer = TableWriter(tmp_path / "t.parquet", STEPS)
    blank = dict.fromkeys(STEPS.names)
    for n in range(5000):
        ids = [None, b"", b"\x01\0\0\0\x02\0\0\0"][n % 3]
        writer.write({**blank, "call_id": str(n), "prompt_ids": ids})
    writer.close()
    table = pq.ParquetFile(tmp_path / "t.parquet")
    assert table.num_row_groups == 2
    assert [row["prompt_ids"] for row in table.read().to_pylist()[:4]] == [None, [], [1, 2], None]


def test_edges_are_put_together_whatever_the_clocks_said() -> None:
    """A prompt that keeps ids of a call which seems to come later is whole all the same; a broken chain has no ids."""
    first = facts.call(call_id="a", ids=(7, 8), received_us=9)
    ids = pack_ids([1, 2, 3, 7, 8, 5])
    edge = Edge(
        base_call_id="a", keep=5, suffix=pack_ids([5]), full_length=6, full_digest=hashlib.sha256(ids).hexdigest()
    )
    second = facts.call(call_id="b", prompt=edge, received_us=1)
    orphan = facts.call(call_id="c", prompt=facts.edge((1,), base="gone", keep=2))
    calls = {call.call_id: call for call in (second, orphan, first)}
    assert prompts(calls) == {"a": pack_ids([1, 2, 3]), "b": ids}


def test_a_request_written_as_a_change_is_told_whole() -> None:
    """Lineage shows the question though the event holds only what is new; without its base it says nothing."""
    first = chat_call("g", "t", "a", [1], [2])
    body = b'{"messages":[{"role":"user","content":"1"},{"role":"user","content":"more"}]}'
    keep = first.request.suffix.rindex(b"]")
    suffix = body[keep:]
    edge = Edge(
        base_call_id="a", keep=keep, suffix=suffix, full_length=len(body), full_digest=hashlib.sha256(body).hexdigest()
    )
    second = chat_call("g", "t", "b", [1], [2], request=edge)
    assert questions({"a": first, "b": second}) == {"a": "1", "b": "more"}
    assert questions({"b": second}) == {}
