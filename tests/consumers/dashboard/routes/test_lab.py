"""The batch lab's answers: those of `claw pool batch`, bounded, with a sentence for every mistake."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from claw_r1.claw.answers import emit
from claw_r1.claw.pool import preview as preview_module
from claw_r1.claw.pool.options import PerspectiveOptions
from claw_r1.claw.pool.preview import preview
from claw_r1.consumers.dashboard.batch.drawn_rows import common_prefix
from claw_r1.consumers.dashboard.routes import lab
from claw_r1.datapool.batch.selection import ordered
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.runs import RunIndex
from claw_r1.datapool.view.preview import ids_in_order
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import readable
from claw_r1.schemas.topics import BATCHES
from tests import facts
from tests.consumers.dashboard.stage import Person
from tests.consumers.dashboard.training import TrainingStage, world
from tests.consumers.runs.observed import planned
from tests.trainer.pooled import SETTINGS, group, rows_of


class Reader(Person):
    """Somebody who asks what may be refused."""

    def refusal(self, path: str, status: int, **query: Any) -> str:
        answer: httpx.Response = self.http.get(path, params=query)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        return str(answer.json()["detail"])


@contextmanager
def reading(stage: TrainingStage) -> Iterator[Reader]:
    with stage.served() as url:
        yield Reader(url)


@pytest.fixture(scope="module")
def empty() -> Iterator[Reader]:
    """Somebody before an empty pool."""
    with reading(TrainingStage()) as reader:
        yield reader


def claw_says(
    stage: TrainingStage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Any:
    """What `claw pool batch --json` prints of the same log."""
    runs = RunIndex()
    for event in readable(stage.log.reader([BATCHES]).read_to_end()):
        runs.apply(event)

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        view = PoolView(stage.log.settings, listed=True, open_reader=lambda: stage.log.reader(TOPICS))
        view.start()
        view.wait_caught_up(20)
        yield SimpleNamespace(view=view, runs=lambda: runs, settings=stage.log.settings)
        view.stop()

    monkeypatch.setattr(preview_module, "open_pool", opened)
    monkeypatch.setattr(preview_module, "FactLookup", lambda _: stage.log.lookup())
    emit(preview(PerspectiveOptions(**options), prefix="claw", verbose=False), as_json=True)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "preset: grpo\ngroup_size: 2\ngroups_per_batch: 2\nzero_variance: drop",
        "{group_size: 2, groups_per_batch: 3, quality_min: 0.5}",
        "group_size: 2\nstaleness_max: 0\nbest_of: 1\norder: newest",
    ],
)
def test_the_page_says_what_claw_says(
    text: str | None, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen groups, counts, reasons: equal, for the run's own spec and for others."""
    stage = world()
    options = {}
    if text is not None:
        (tmp_path / "spec.yaml").write_text(text)
        options = {"spec": tmp_path / "spec.yaml"}
    typed = claw_says(stage, capsys, monkeypatch, **options)
    with reading(stage) as reader:
        answer = reader.get("lab/preview", **({} if text is None else {"spec": text}))
    assert {name: value for name, value in answer["preview"].items() if name != "left_out_groups"} == typed
    assert answer["preview"]["left_out_groups"] == len(typed["left_out"])
    assert sum(row["tokens"] for row in answer["rows"]) == typed["row_tokens"]
    assert sum(row["tokens_trained"] for row in answer["rows"]) == typed["response_tokens"]


def test_what_if_names_the_groups_that_differ() -> None:
    """Beside the run's own spec: into the batch, out of it, and another reason."""
    with reading(world()) as reader:
        own = reader.get("lab/preview")
        other = reader.get("lab/preview", spec="{group_size: 2, groups_per_batch: 2, zero_variance: drop}")
        same = reader.get("lab/preview", spec="{group_size: 2, groups_per_batch: 2}")
    assert own["preview"]["chosen"] == ["next", "equal"]
    assert own["differences"] == same["differences"] == {"groups": [], "total": 0}
    assert other["own"]["preview"]["chosen"] == ["next", "equal"]
    assert other["own"]["spec"] == {"group_size": 2, "groups_per_batch": 2}
    assert other["differences"] == {
        "groups": [
            {"group_id": "equal", "own": None, "this": "zero_variance"},
            {"group_id": "late", "own": "next_batch", "this": None},
        ],
        "total": 2,
    }


def test_rows_show_what_is_trained_and_what_begins_alike() -> None:
    """Calls that extend each other are one row; a rewritten one is a row of its own; members of a group share their prompt."""
    history = group("g", [0.0, 1.0], ids=((5, 6, 7), (8, 9)))
    with reading(TrainingStage(history)) as reader:
        first, second = reader.get("lab/preview", spec="{group_size: 2, groups_per_batch: 1}")["rows"]
    assert (first["tokens"], first["trained"], first["calls"]) == (8, [[2, 5], [6, 8]], ["c0", "c1"])
    assert (first["shared"], second["shared"], second["shared_with_own"]) == (0, 1, 0)
    assert [each["return"] for each in (first, second)] == [0.0, 1.0]


def test_a_call_that_was_rewritten_is_a_branch() -> None:
    """It begins like the row before and goes on otherwise: a row of its own, whose shared part is context."""
    history = [
        replace(each, prompt=facts.edge([1, 2, 3, 9])) if getattr(each, "call_id", "") == "c1" else each
        for each in group("g", [1.0], ids=((5, 6), (7,)))
    ]
    with reading(TrainingStage(history)) as reader:
        spec = "{algorithm: reinforce_pp, group_size: 1, groups_per_batch: 1}"
        rows = reader.get("lab/preview", spec=spec)["rows"]
    assert [(row["calls"], row["tokens"], row["trained"]) for row in rows] == [
        (["c0"], 4, [[2, 4]]),
        (["c1"], 5, [[4, 5]]),
    ]
    assert [(row["shared_with_own"], row["shared"]) for row in rows] == [(0, 0), (2, 2)]


@pytest.mark.parametrize(
    ("left", "right"), [([], []), ([1], []), ([1, 2], [1, 2, 3]), ([1, 2, 9], [1, 2, 3, 4]), ([9], [1])]
)
def test_a_common_prefix_is_counted(left: list[int], right: list[int]) -> None:
    """As by comparing one by one."""
    one_by_one = next(
        (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    arrays = [unpack(each) for each in (left, right)]
    assert common_prefix(*arrays) == common_prefix(*arrays[::-1]) == one_by_one


def unpack(ids: list[int]) -> Any:
    import array

    return array.array("i", ids)


def test_a_pool_too_large_to_look_at_is_begun_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first groups in the spec's order make up the same batch; of the others it says how many there are."""
    stage = TrainingStage([fact for n in range(12) for fact in group(f"g{n:02}", [0.0, 1.0], at_us=n)])
    with reading(stage) as reader:
        spec = "{group_size: 2, groups_per_batch: 2}"
        whole = reader.get("lab/preview", spec=spec)["preview"]
        monkeypatch.setattr(lab, "TRAJECTORIES_MAX", 6)
        begun = reader.get("lab/preview", spec=spec)["preview"]
        assert (begun["chosen"], begun["rows"], begun["not_looked_at"]) == (whole["chosen"], whole["rows"], 9)
        assert begun["reasons"] == {"waits": {"next_batch": 1}}
        newest = reader.get("lab/preview", spec=spec[:-1] + ", order: newest}")["preview"]
        assert newest["chosen"] == ["g11", "g10"]
        cut = reader.get("lab/preview", spec=spec, limit=1)["preview"]
        assert (len(cut["chosen"]), len(cut["left_out"]), cut["left_out_groups"]) == (1, 1, 1)


@pytest.mark.parametrize("order", ["fifo", "newest", "priority"])
def test_a_listed_view_knows_the_order_of_groups_without_reading_them(order: str) -> None:
    """As the rows themselves have it, ties by id, tags that are no number aside."""
    tags = [(), ("priority:2",), ("priority:10", "x"), ("priority:x",), ("priority:-1",), ()]
    history = [fact for n, each in enumerate(tags) for fact in group(f"g{n}", [0.0, 1.0], at_us=(n % 3), tags=each)]
    rows = PoolRows(listed=True)
    for _, name, key, value in list(rows_of(history, lambda item: MemoryLog(SETTINGS).append([item])[0])):
        rows.apply(name, key, value)
    spec = BatchSpec(order=order)
    assert ids_in_order(rows, spec) == [row.group_id for row in ordered(rows.group_rows(), spec)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("group_sizes: 2", "group_sizes: no such field; did you mean group_size?"),
        ("preset: gropo", "preset: 'gropo'; there are: grpo"),
        ("channel: val", "channel: val is for evaluation"),
        ("groups_per_batch: 0", "greater than or equal to 1"),
        ("{a: [", "cannot be read: "),
        ("- grpo", "expected a mapping of fields"),
        ("[" * 1000, "cannot be read: nested too deep"),
        ("tags: &a [x]\ntags_exclude: *a", "aliases (*name) are not taken"),
        ("tags: 2026-99-99", "cannot be read: month must be in 1..12"),
        ("\x00", "cannot be read: "),
    ],
)
def test_a_mistake_is_told_as_the_spec_tells_it(text: str, says: str, empty: Reader) -> None:
    """Problem details with the model's sentence."""
    assert says in empty.refusal("lab/preview", 422, spec=text)


def test_without_a_run_a_spec_is_needed(empty: Reader) -> None:
    """It says what to do; with one, an empty pool is no fault."""
    answer = empty.get("lab/preview")
    assert answer["preview"] is None
    assert "Begin with a preset" in answer["problem"]
    answer = empty.get("lab/preview", spec="preset: grpo")
    assert (answer["own"], answer["differences"], answer["rows"]) == (None, None, [])


def test_a_spec_of_another_version_is_told() -> None:
    """What a newer trainer planned with is no spec here: a sentence, and another spec still works."""
    stage = world()
    stage.report(replace(planned(1), spec='{"from_the_future": 1}'))
    with reading(stage) as reader:
        assert "the run's own spec is of another version" in reader.refusal("lab/preview", 422)
        assert reader.get("lab/preview", spec="preset: grpo")["own"] is None


def test_every_field_has_words(empty: Reader) -> None:
    """The help beside the text is made of these."""
    knobs = empty.get("lab/fields")["knobs"]
    assert [knob["name"] for knob in knobs] == list(BatchSpec.model_fields)
    assert all(knob["does"] for knob in knobs)
