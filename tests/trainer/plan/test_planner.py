"""What a planner says of groups that are never trained."""

import json
from pathlib import Path

from structlog.testing import capture_logs

from claw_r1.datapool.fold.bounds import SKIPPED_GROUPS_MAX
from claw_r1.trainer.plan.planner import by_reason
from claw_r1.trainer.plan.skips import IN_A_ROW, STARVED_S, Skips
from claw_r1.trainer.progress import TrainingProgress
from tests.trainer.incarnation import RUN, settings


def test_a_backlog_that_is_skipped_is_told_in_events_of_a_bounded_size() -> None:
    """200,000 stale groups in one event were more than the log takes, and ended the trainer; each group is told once."""
    stale = [f"g{number:05}" for number in range(2 * SKIPPED_GROUPS_MAX + 1)]
    parts = list(by_reason(dict.fromkeys(stale, "too_stale") | {"solved": "reward_mean_high"}))
    assert [(reason, len(group_ids)) for reason, group_ids in parts] == [
        ("reward_mean_high", 1),
        ("too_stale", SKIPPED_GROUPS_MAX),
        ("too_stale", SKIPPED_GROUPS_MAX),
        ("too_stale", 1),
    ]
    assert [name for reason, group_ids in parts[1:] for name in group_ids] == stale


def test_groups_that_are_skipped_for_one_reason_with_other_numbers_are_counted_together(tmp_path: Path) -> None:
    """On a restored log each group may be of another version that this run has not made; the reason is one."""
    warnings = tmp_path / "warnings.json"
    skips = Skips(settings(tmp_path, tmp_path / "model", warnings_file=warnings))
    for number in range(IN_A_ROW):
        assert not warnings.exists()
        skips.count({f"g{number}": f"sampled_by_unknown_version_{number}"})
    (warning,) = json.loads(warnings.read_text())
    assert warning.startswith("skipped 20 groups in a row, the last because of sampled_by_unknown_version_19: ")


def test_a_run_that_waits_in_vain_says_for_what(tmp_path: Path) -> None:
    """Once, after two minutes without a batch, by the reason of most of the groups; a batch takes the warning back."""
    warnings = tmp_path / "warnings.json"
    skips = Skips(settings(tmp_path, tmp_path / "model", warnings_file=warnings))
    waiting = {f"g{number}": f"reward_missing_for_{number}" for number in range(1, 4)} | {"a": "members_1_of_2"}
    skips.starve(waiting, STARVED_S - 1)
    skips.starve({}, 2 * STARVED_S)
    assert not warnings.exists()
    with capture_logs() as lines:
        skips.starve(waiting, STARVED_S)
        skips.starve(waiting, 2 * STARVED_S)
    (line,) = lines
    assert (line["event"], line["groups"], line["reason"]) == ("starving", 3, "reward_missing_for_1")
    (warning,) = json.loads(warnings.read_text())
    assert warning.startswith("no batch for 120 s: 3 groups wait because of reward_missing_for_1: `claw pool why g1`")
    skips.begin_anew()
    assert not warnings.exists()


def test_a_run_that_lacks_an_environment_says_which(tmp_path: Path) -> None:
    """Once, after two minutes, and not that the groups of another one wait; also where no group waits at all."""
    warnings = tmp_path / "warnings.json"
    for waiting in ({"a": "environment_full: maths"}, {}):
        skips = Skips(settings(tmp_path, tmp_path / "model", warnings_file=warnings))
        skips.starve(waiting, STARVED_S - 1, {"web": 2})
        assert not warnings.exists()
        with capture_logs() as lines:
            for waited_s in (STARVED_S, 2 * STARVED_S):
                skips.starve(waiting, waited_s, {"web": 2, "code": 1})
        assert [(line["event"], line["missing"]) for line in lines] == [("environment_starves", {"web": 2, "code": 1})]
        (warning,) = json.loads(warnings.read_text())
        assert warning.startswith("no batch for 120 s: groups are missing, 1 of code, 2 of web: are agents at work")
        skips.begin_anew()
        assert not warnings.exists()


def test_a_warning_that_no_disk_takes_ends_no_run(tmp_path: Path) -> None:
    """It stands in the log, and beside it that it is not in the file."""
    (tmp_path / "no-folder").touch()
    with capture_logs() as lines:
        skips = Skips(settings(tmp_path, tmp_path / "model", warnings_file=tmp_path / "no-folder" / "warnings.json"))
        skips.starve({"g": "reward_missing"}, STARVED_S)
        skips.begin_anew()
    assert [line["event"] for line in lines] == ["not_written", "starving", "not_written", "not_written"]


def test_batches_without_an_advantage_are_warned_of_once_for_as_long_as_they_come(tmp_path: Path) -> None:
    """From the fifth in a row on; a new plan does not take the warning back, a batch with an advantage does."""
    warnings = tmp_path / "warnings.json"
    skips = Skips(settings(tmp_path, tmp_path / "model", warnings_file=warnings))
    progress = TrainingProgress()
    with capture_logs() as lines:
        for sequence, share in enumerate([0.0, 1.0, *[0.0] * 7]):
            progress.sequence = sequence
            progress.count(sequence, {"reward": -0.3, "advantage_share": share})
            skips.see(progress)
            assert warnings.exists() == (sequence >= 6)
            skips.begin_anew()
            assert warnings.exists() == (sequence >= 6)
    (line,) = lines
    assert (line["event"], line["log_level"], line["batches"], line["reward"]) == (
        "nothing_to_learn",
        "warning",
        5,
        -0.3,
    )
    (warning,) = json.loads(warnings.read_text())
    assert warning.startswith(
        "nothing can be learnt: 5 batches in a row up to batch 6, and all since, had no advantage"
    )
    assert f"`claw runs show {RUN}`" in warning
    progress.count(9, {"reward": 0.1, "advantage_share": 0.25})
    skips.see(progress)
    assert not warnings.exists()
