"""`claw runs`: what is printed and drawn, and what a mistyped name gets."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from claw_r1.claw.runs.show import compare_text, list_text, show_text
from claw_r1.consumers.runs import summary
from claw_r1.datapool.runs import runs_of
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import BATCHES, WEIGHTS
from tests.claw.runs.whole_runs import ENVIRONMENTS, EPISODES, NOW_US, run_of, went
from tests.consumers import published
from tests.consumers.runs import observed


def test_a_run_is_shown_with_its_best_version_and_its_settings() -> None:
    """Each part of the answer has its line."""
    text = "\n".join(show_text(summary.whole(run_of(), NOW_US)))
    for line in (
        "run run of tiny: ended (stop_reward) after 30 batches, version 30",
        "best evaluated version: version 20: greedy 0.7, pass@1 0.500, pass@4 0.900, pass@16 1.000, 64 episodes; file:///best",
        "newest export: version 0, file:///v0",
        "spec.seed = 1",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("held_out", "says"), [(True, ", held-out tasks"), (False, ", tasks not held out of training"), (None, "")]
)
def test_the_best_version_says_of_which_tasks_it_is(held_out: bool | None, says: str) -> None:
    """A figure of tasks that are trained on is no figure of what was learnt beyond them."""
    run = run_of()
    run.take(observed.evaluated(21, 0.8, best=True, held_out=held_out))
    shown = summary.whole(run, NOW_US)
    assert shown["best"]["held_out"] is held_out
    lines = [line for line in show_text(shown) if "version 21" in line]
    assert len(lines) == 2
    assert all(f"64 episodes{says}" in line for line in lines)
    assert all(line.split("64 episodes")[1].split(";")[0] == says for line in lines)


def test_a_run_without_anything_is_shown_too() -> None:
    """A run that has just begun: no batch, no export, no evaluation."""
    begun = runs_of(observed.records([observed.started()]))["run"]
    text = "\n".join(show_text(summary.whole(begun, NOW_US)))
    assert "no version was evaluated" in text
    assert "none yet" in "\n".join(list_text([summary.row(begun, NOW_US)]))


def test_a_comparison_shows_what_differs() -> None:
    """The differing setting with both values, and both means."""
    pair = summary.compared(run_of(), run_of("other", 10, '{"spec": {"seed": 2}}'), NOW_US)
    text = "\n".join(compare_text(pair))
    assert "spec.seed  1    2" in text
    assert "mean of 10 batches" in text
    same = "\n".join(compare_text(summary.compared(run_of(), run_of(), NOW_US)))
    assert "no setting differs" in same


def test_a_run_shows_how_its_episodes_went() -> None:
    """All together and each environment, dots in its name or not; a run of an older trainer says nothing of it."""
    text = "\n".join(show_text(summary.whole(went(EPISODES | ENVIRONMENTS), NOW_US)))
    assert "episodes of the last 5 batches: 40 tokens per reply (p95 -), 2 turns, cut off 0.25, failed 0.5" in text
    assert "    math: reward 0.75, share 1, " in text
    assert "    v1.2: reward 0.5, share -, " in text
    assert "episodes of the last" not in "\n".join(show_text(summary.whole(went({}), NOW_US)))


def test_environments_and_slots_are_compared() -> None:
    """Also those that one of the runs alone has."""
    pair = summary.compared(went(EPISODES | ENVIRONMENTS), went(EPISODES, "other"), NOW_US)
    assert pair["metrics"]["env.math.reward"] == [0.75, None]
    assert pair["metrics"]["slot.rules/exact"] == [0.5, None]
    assert pair["metrics"]["truncated_share"] == [0.25, 0.25]


@pytest.mark.kafka
@pytest.mark.process
def test_the_command_reads_the_log(log_settings: LogSettings, tmp_path: Path) -> None:
    """list, show, plot and compare as JSON; a mistyped name is one line with the nearest ones and exit code 2."""
    batches = [
        *(observed.started(name, f'{{"seed": {n}}}') for n, name in enumerate(("verbs-1", "verbs-2"))),
        *(observed.trained(n, 0.5, name) for name in ("verbs-1", "verbs-2") for n in range(3)),
    ]
    weights = [observed.weights(3, "file:///v3", "verbs-1"), observed.weights(9, "file:///v9", "gone")]
    items = [Outgoing.of(BATCHES, event.run_id.encode(), event) for event in batches]
    published.publish(log_settings, [*items, *(Outgoing.of(WEIGHTS, b"tiny", event) for event in weights)])

    def claw(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"KAFKA_BOOTSTRAP_SERVERS": log_settings.bootstrap_servers, "CLAW_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "claw_r1.claw", "runs", *arguments, "--prefix", log_settings.prefix]
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
        )

    rows = orjson.loads(claw("list", "--json").stdout)["runs"]
    assert {(row["run"], row["state"], row["batches"], row["version"]) for row in rows} == {
        ("verbs-1", "running", 3, 3),
        ("verbs-2", "running", 3, 3),
    }
    whole = orjson.loads(claw("show", "verbs-1", "--json").stdout)
    assert whole["newest_export"] == {"version": 3, "uri": "file:///v3"}
    pair = orjson.loads(claw("compare", "verbs-1", "verbs-2", "--json").stdout)
    assert pair["settings"] == {"seed": [0, 1]}
    picture = Path(orjson.loads(claw("plot", "verbs-1", "--json").stdout)["plot"])
    assert picture == tmp_path / "plots" / "verbs-1.png"
    assert picture.stat().st_size > 10_000
    unknown = claw("show", "verb-1")
    assert (unknown.returncode, unknown.stderr.count("\n"), "verbs-1" in unknown.stderr) == (2, 1, True), unknown.stderr
