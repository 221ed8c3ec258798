"""Export: what is in the tables, that a manifest makes the same bytes, and what is refused. On a real broker."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from claw_r1.consumers.export.errors import CannotExport
from claw_r1.consumers.export.export import export, new_directory, reproduce
from claw_r1.consumers.export.manifest import NAME, DatasetManifest, load
from claw_r1.consumers.export.offsets import resolve
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.eventlog.kafka.admin import delete_records
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from tests import facts
from tests.consumers import published

pytestmark = pytest.mark.kafka
SPEC = BatchSpec(group_size=2)
SCORES = {"entropy@1": 0.75, "tool_calls@2": None}


def exported(settings: LogSettings, out: Path, spec: BatchSpec | None = SPEC) -> DatasetManifest:
    return export(settings, resolve(settings, "beginning", "end"), spec, out)


def rows(out: Path, table: str = "steps") -> list[dict]:
    return pq.read_table(out / f"{table}.parquet").to_pylist()


def test_a_step_row_is_the_captured_call_with_its_joins(log_settings: LogSettings, tmp_path: Path) -> None:
    """Ids, log-probabilities, messages, rewards, versions and the position of the fact stand in one row."""
    told = published.group("g", [1.0, 0.0], calls=1)
    judged = facts.reward("g", "g-0", 0.5, call_id="g-0-0", source="judge", name="format")
    places = dict(zip([id(event) for event in told], published.say(log_settings, *told), strict=True))
    published.say(log_settings, judged, facts.curated("g", "g-0", "g-0-0", quality=0.75, tags=("good",), scores=SCORES))
    exported(log_settings, tmp_path / "out")
    first, second = rows(tmp_path / "out")
    assert (first["group_id"], first["trajectory_id"], first["call_id"]) == ("g", "g-0", "g-0-0")
    assert (first["prompt_ids"], first["response_ids"]) == ([1, 2, 3], [10, 20])
    assert first["response_logprobs"] == [-0.25, -0.25]
    assert [(m["role"], m["content"]) for m in first["messages"]] == [("user", "1 2 3"), ("assistant", "10 20")]
    own = judged.envelope
    of_event = {"occurred_at_us": own.occurred_at_us, "event_id": own.event_id, "verdict": False}
    assert first["rewards"] == [{"source": "judge", "name": "format", "value": 0.5, "revision": 0, **of_event}]
    assert (first["reward_total"], first["outcome"], first["return_total"]) == (0.5, 1.0, 1.5)
    assert [slot["value"] for slot in first["trajectory_rewards"]] == [1.0]
    assert first["version_spans"] == [{"run_id": "run", "version": 3, "start": 0, "end": 2}]
    assert (first["quality"], first["curation_tags"], first["trained"]) == (0.75, ["good"], True)
    assert {one["scorer"]: one["score"] for one in first["scores"]} == SCORES
    call = next(event for event in told if getattr(event, "call_id", "") == "g-0-0")
    at = places[id(call)]
    assert (first["source_topic"], first["source_partition"], first["source_offset"]) == (
        at.topic,
        at.partition,
        at.offset,
    )
    assert (second["trajectory_id"], second["reward_total"]) == ("g-1", None)


def test_calls_that_extend_each_other_are_one_sequence(log_settings: LogSettings, tmp_path: Path) -> None:
    """The mask is 1 on exactly the sampled tokens, each once; logprobs and versions stand where it is 1."""
    published.say(log_settings, *published.group("g", [1.0, 0.0], calls=2))
    made = exported(log_settings, tmp_path / "out")
    first = rows(tmp_path / "out", "sequences")[0]
    assert made.counts == {"groups": 1, "groups_seen": 1, "trajectories": 2, "steps": 4, "sequences": 2}
    assert first["call_ids"] == ["g-0-0", "g-0-1"]
    assert first["sequence_ids"] == [1, 2, 3, 10, 20, 5, 11, 21]
    assert first["loss_mask"] == [0, 0, 0, 1, 1, 0, 1, 1]
    assert first["versions"] == [-1, -1, -1, 3, 3, -1, 3, 3]
    assert [round(x, 3) for x in first["logprobs"]] == [0, 0, 0, -0.25, -0.25, 0, -0.25, -0.25]


def test_columns_have_the_types_that_trainers_read(log_settings: LogSettings, tmp_path: Path) -> None:
    """Ids and mask are list<int32>, log-probabilities list<float32>."""
    exported(log_settings, tmp_path / "out")
    steps, sequences = (pq.read_schema(tmp_path / "out" / f"{name}.parquet") for name in ("steps", "sequences"))
    for schema, name in [
        (steps, "prompt_ids"),
        (steps, "response_ids"),
        (sequences, "sequence_ids"),
        (sequences, "loss_mask"),
    ]:
        assert str(schema.field(name).type) == "list<element: int32>"
    assert str(steps.field("response_logprobs").type) == "list<element: float>"


def test_the_spec_decides_what_goes_out(log_settings: LogSettings, tmp_path: Path) -> None:
    """Groups that the spec leaves out are counted by reason; without a spec everything captured goes out."""
    published.say(log_settings, *published.group("good", [1.0, 0.0]), *published.group("flat", [0.0, 0.0]))
    published.say(log_settings, *published.group("open", [1.0, 0.0])[:-1], *published.group("unjudged", [None, 1.0]))
    strict = exported(log_settings, tmp_path / "strict", BatchSpec(group_size=2, zero_variance="drop"))
    whole = exported(log_settings, tmp_path / "whole", None)
    assert {row["group_id"] for row in rows(tmp_path / "strict")} == {"good"}
    assert sum(strict.left_out.values()) == 3
    assert "zero_variance" in strict.left_out
    assert {row["group_id"] for row in rows(tmp_path / "whole")} == {"good", "flat", "open", "unjudged"}
    assert (whole.counts["groups"], whole.left_out) == (4, {})


def test_best_of_trains_the_best_only_and_the_weighted_return_stands_beside_it(
    log_settings: LogSettings, tmp_path: Path
) -> None:
    """What `best_of` leaves out goes out without a trained token; every row tells the return under the spec."""
    published.say(log_settings, *published.group("g", [1.0, 0.25]))
    exported(log_settings, tmp_path / "best", BatchSpec(group_size=2, preset="sft_best", best_of=1))
    assert {(row["reward"], row["trained"]) for row in rows(tmp_path / "best")} == {(1.0, True), (0.25, False)}
    assert {row["reward"] for row in rows(tmp_path / "best", "sequences")} == {1.0}


def test_a_manifest_makes_the_same_bytes_whatever_came_since(log_settings: LogSettings, tmp_path: Path) -> None:
    """Facts after the offset vector, a reward for an exported call among them, change no byte of a reproduction."""
    published.say(log_settings, *[event for n in range(12) for event in published.group(f"g{n}", [1.0, 0.0])])
    first = exported(log_settings, tmp_path / "first")
    published.say(log_settings, facts.reward("g3", "g3-0", 7.0), *published.group("late", [1.0, 0.0]))
    published.say(log_settings, facts.evicted("g4", "g4-0"))
    assert reproduce(log_settings, load(tmp_path / "first"), tmp_path / "second") == []
    for name in ("steps.parquet", "sequences.parquet", NAME):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert exported(log_settings, tmp_path / "third").id != first.id


def test_a_manifest_says_when_bytes_differ(log_settings: LogSettings, tmp_path: Path) -> None:
    """A digest that does not come out again is named."""
    published.say(log_settings, *published.group("g", [1.0, 0.0]))
    made = exported(log_settings, tmp_path / "out")
    other = made.files["steps.parquet"].model_copy(update={"sha256": "0" * 64})
    forged = made.model_copy(update={"files": {**made.files, "steps.parquet": other}})
    assert reproduce(log_settings, forged, tmp_path / "again") == ["steps.parquet"]


def test_a_cut_history_is_refused_with_the_missing_range(log_settings: LogSettings, tmp_path: Path) -> None:
    """Retention removed facts below the vector: nothing is written, and the message names what is missing."""
    (place, *_) = published.say(log_settings, *published.group("g", [1.0, 0.0]))
    vector = resolve(log_settings, "beginning", "end")
    delete_records(log_settings, {(place.topic, place.partition): 2})
    with pytest.raises(CannotExport, match=rf"{place.topic} partition {place.partition} no longer holds \[0, 2\)"):
        export(log_settings, vector, None, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    export(log_settings, resolve(log_settings, "earliest", "end"), None, tmp_path / "rest")


def test_poison_is_passed_over_and_counted(log_settings: LogSettings, tmp_path: Path) -> None:
    """Bytes that are no fact, and a fact under another group's key, change no row."""
    published.say(log_settings, *published.group("g", [1.0, 0.0]))
    stray = Outgoing.of(CALLS, group_key("g"), facts.call("other", "t", "c"))
    published.publish(log_settings, [Outgoing(topic=CALLS, key=b"g", value=b"\x07nothing"), stray])
    made = exported(log_settings, tmp_path / "out", None)
    assert made.unreadable == {"bad_magic": 1, "wrong_key": 1}
    assert {row["group_id"] for row in rows(tmp_path / "out")} == {"g"}


def test_a_directory_that_holds_something_is_left_alone(log_settings: LogSettings, tmp_path: Path) -> None:
    """An export never writes over another."""
    exported(log_settings, tmp_path / "out")
    with pytest.raises(CannotExport, match="is there already"):
        exported(log_settings, tmp_path / "out")


def test_two_exports_into_one_directory_do_not_meet(tmp_path: Path) -> None:
    """The second is refused while the first writes; what the first has written stays, and is all that there is."""
    out = tmp_path / "out"
    with new_directory(out) as folder:
        (folder / "steps.parquet").write_bytes(b"whole")
        with pytest.raises(CannotExport, match="written by another process"), new_directory(out):
            pass
    assert [(path.name, path.read_bytes()) for path in out.iterdir()] == [("steps.parquet", b"whole")]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("out", [".", "below/..", "/"])
def test_the_working_directory_is_not_replaced(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stands in it would stand in one that is gone; a way there and back to a new one is one like any other."""
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(CannotExport, match="cannot be replaced: name a directory below it"), new_directory(Path(out)):
        pass
    with new_directory(Path("below/../set")) as folder:
        (folder / "rows").write_text("x")
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["below", "set"]


def test_a_dataset_has_its_name_when_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure must not leave a name over empty files: they are on disk before it, and itself when the command ends."""
    out, synced, fsync = tmp_path / "out", [], os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, out.exists()))

    monkeypatch.setattr(os, "fsync", note)
    with new_directory(out) as folder:
        (folder / "steps.parquet").write_bytes(b"whole")
    assert synced == [("steps.parquet", False), (folder.name, False), (tmp_path.name, True)]
