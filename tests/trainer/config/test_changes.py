"""Which settings a resumed run may have that it did not have before."""

import json

import pytest
from structlog.testing import capture_logs

from claw_r1.trainer.config.changes import IN_CHECKPOINTS, check_changes, leaves
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.settings import TrainerSettings

FIELDS = {"model_dir": "model", "model_id": "m", "run_id": "r", "out_dir": "out"}
BEFORE = TrainerSettings(**FIELDS)
LEAVES = dict(leaves(TrainerSettings, BEFORE.model_dump(mode="json")))


def check(config, settings=BEFORE, allowed=()):
    with capture_logs() as lines:
        check_changes(config, settings, run_id="r", may_change=TrainerSettings.MAY_CHANGE, allowed=allowed)
    return [line["setting"] for line in lines]


def with_other(name):
    """The earlier settings, as a run's start holds them, with another value in one place."""
    config = BEFORE.model_dump(mode="json")
    *path, last = name.split(".")
    holder = config
    for part in path:
        holder = holder[part]
    holder[last] = "another"
    return json.dumps(config)


@pytest.mark.parametrize("name", sorted(LEAVES.keys() - IN_CHECKPOINTS))
def test_every_setting_may_change_or_is_refused_by_name(name):
    """What is refused is let through by its own name, or by the name of what holds it; what differs is logged."""
    if name in TrainerSettings.MAY_CHANGE:
        assert check(with_other(name)) == [name]
        return
    with pytest.raises(SettingsInvalid, match=f"--allow-change {name}$") as refused:
        check(with_other(name))
    assert "\n" not in str(refused.value)
    assert check(with_other(name), allowed=(name,)) == [name]
    assert check(with_other(name), allowed=(name.split(".")[0],)) == [name]


@pytest.mark.parametrize("name", sorted(IN_CHECKPOINTS))
def test_what_checkpoints_are_laid_out_by_cannot_be_allowed_to_change(name):
    """They could not be loaded; the line says what to do instead."""
    for allowed in ((), (name,), (name.split(".")[0],)):
        with pytest.raises(SettingsInvalid, match=f"say {name}: another, or begin another run_id") as refused:
            check(with_other(name), allowed=allowed)
        assert "\n" not in str(refused.value)


def test_a_run_of_before_decay_groups_is_told_to_keep_what_it_had():
    """It decayed everything: its settings do not say so, and the default is another one now."""
    config = BEFORE.model_dump(mode="json")
    del config["optimizer"]["decay"]
    with pytest.raises(SettingsInvalid, match=r"say optimizer\.decay: all"):
        check(json.dumps(config))
    as_it_was = BEFORE.model_copy(update={"optimizer": BEFORE.optimizer.model_copy(update={"decay": "all"})})
    assert check(json.dumps(config), as_it_was) == []
    del config["optimizer"]
    assert check(json.dumps(config), as_it_was) == []


def test_what_changes_the_meaning_of_a_run_is_not_free():
    """Model, loss, precision, stage, spec; and each name that is free is that of a setting."""
    meaning = {"model_dir", "model_id", "loss", "precision", "zero_stage", "spec.algorithm", "learning_rate", "seed"}
    assert meaning <= LEAVES.keys() - TrainerSettings.MAY_CHANGE
    assert LEAVES.keys() >= TrainerSettings.MAY_CHANGE


def test_a_setting_that_an_older_trainer_did_not_have_was_its_default():
    """A run that began before a setting existed goes on; a value that is no default is a change."""
    config = BEFORE.model_dump(mode="json")
    del config["clip_high"], config["spec"]["staleness_max"]
    config["gone_since"] = 1
    assert check(json.dumps(config)) == []
    with pytest.raises(SettingsInvalid, match=r"clip_high was 0\.28 and is 0\.3"):
        check(json.dumps(config), BEFORE.model_copy(update={"clip_high": 0.3}))


def test_a_path_is_the_same_however_it_is_written(tmp_path, monkeypatch):
    """Relative to where the trainer was started, or not."""
    monkeypatch.chdir(tmp_path)
    config = {**BEFORE.model_dump(mode="json"), "model_dir": str(tmp_path / "model")}
    assert check(json.dumps(config)) == []


def test_a_name_that_is_no_setting_is_told():
    """With the nearest one."""
    with pytest.raises(SettingsInvalid, match="no setting learning_rat; did you mean learning_rate"):
        check(json.dumps(BEFORE.model_dump(mode="json")), allowed=("learning_rat",))
