"""Settings: order of precedence, and how a mistake is told."""

import json
import os
import subprocess
import sys

import pytest

from claw_r1.runtime.modules import EXTRAS
from claw_r1.trainer.config import directories, extras
from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.errors import ModelInvalid, SettingsInvalid
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.plan.dry_run import dry_run
from claw_r1.trainer.settings import TrainerSettings, load
from tests.trainer.tiny import make_model

FIELDS = {"model_dir": "model", "model_id": "tiny", "run_id": "r", "out_dir": "out", "learning_rate": 0.5}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps({**FIELDS, "spec": {"groups_per_batch": 3, "group_size": 4}}))
    return path


def test_flag_over_environment_over_file_over_default(config, monkeypatch):
    """Each level overrides the one under it, field by field, in the nested spec too."""
    monkeypatch.setenv("CLAW_TRAINER_LEARNING_RATE", "0.25")
    monkeypatch.setenv("CLAW_TRAINER_SEED", "9")
    monkeypatch.setenv("CLAW_TRAINER_SPEC__GROUP_SIZE", "6")
    settings = load(["--config", str(config), "--seed", "11", "--spec.staleness-max", "2"])
    assert (settings.learning_rate, settings.seed, settings.weight_decay) == (0.25, 11, 0.0)
    assert (settings.spec.groups_per_batch, settings.spec.group_size, settings.spec.staleness_max) == (3, 6, 2)


def test_set_is_a_flag_by_the_name_of_the_setting(config, monkeypatch):
    """In sections, too, with lists and null; it wins over the environment and the file, and a typing error is told."""
    monkeypatch.setenv("CLAW_TRAINER_LEARNING_RATE", "0.25")
    words = ["learning_rate=0.125", "spec.tags=[a, b]", "spec.group_size=6", "stop_reward=null", "model-id=other"]
    settings = load(["--config", str(config), *(word for value in words for word in ("--set", value))])
    assert (settings.learning_rate, settings.spec.tags, settings.spec.group_size) == (0.125, ("a", "b"), 6)
    assert (settings.stop_reward, settings.model_id) == (None, "other")
    wrong = {
        "spec.grup_size=6": "did you mean spec.group_size",
        "seed": "NAME=VALUE",
        "spec.mix=null": r"spec\.mix \(--spec\.mix or CLAW_TRAINER_SPEC__MIX\): a mapping is written",
        "spec.preset=gea": "preset: 'gea'; there are: .*gae",
    }
    for typed, told in wrong.items():
        with pytest.raises(SettingsInvalid, match=told):
            load(["--config", str(config), "--set", typed])


@pytest.mark.parametrize("words", [["--set", "spec.preset=gae"], ["--spec.preset", "gae"]], ids=" ".join)
def test_a_preset_is_a_flag_under_what_the_file_says(config, words):
    """It stands for fields that nothing else sets; without it the file's own stays."""
    spec = load(["--config", str(config), *words]).spec
    assert (spec.algorithm, spec.groups_per_batch, spec.group_size) == ("gae", 3, 4)
    assert load(["--config", str(config)]).spec.algorithm == "grpo"


def test_one_thing_at_a_time(config, capsys):
    """A dry run, a replay and offline training exclude each other."""
    with pytest.raises(SystemExit):
        load(["--config", str(config), "--dry-run", "--offline", "pool"])
    assert "not allowed with" in capsys.readouterr().err


def test_a_run_needs_no_file():
    """Every setting is a flag, so a command line alone can name a run."""
    named = {"--model-dir": "model", "--model-id": "tiny", "--run-id": "r", "--out-dir": "out"}
    assert load([word for pair in named.items() for word in pair]).run_id == "r"


def test_the_log_is_where_it_was_said_to_be(config):
    """Broker, prefix and partitions override the log's own settings; what is not said is theirs."""
    settings = load(
        ["--config", str(config), "--bootstrap-servers", "h:1", "--prefix", "p", "--partitions", "3"]
    ).log_settings()
    assert (settings.bootstrap_servers, settings.prefix, settings.partitions) == ("h:1", "p", 3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batches_min": 5, "batches_max": 4, "stop_reward": 1}, "batches_min 5 is above"),
        ({"batches_min": 5}, "stop_reward"),
        ({"out_dir": "model"}, "out_dir is model_dir"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"typo": 1}, "typo"),
        ({"spec": {"group_size": 0}}, "spec.group_size"),
        ({"spec": {"group_size": 1}}, "group_size 1: grpo needs 2 trajectories"),
        ({"spec": {"preset": "sft_best"}, "loss": "ppo_clip"}, "algorithm sft has none"),
        ({"run_id": ""}, "run_id"),
        ({"objective": {"minibatches": 9}}, "a batch of 8 groups cannot be dealt"),
        (
            {"loss": "cross_entropy", "objective": {"correction": "tis"}},
            "objective.correction tis: loss cross_entropy has no",
        ),
        ({"loss": "cross_entropy", "objective": {"mask_below": 0.5}}, "objective.mask_below and mask_above: loss"),
        ({"objective": {"correction_cap": 3.0}}, "set objective.correction"),
        ({"objective": {"correction": "icepop", "correction_cap": 3.0}}, "does nothing with icepop"),
        ({"objective": {"correction": "tis", "icepop_low": 0.1}}, "set objective.correction: icepop"),
        ({"loss": "cross_entropy", "objective": {"stale_negatives": 0.5}}, "objective.stale_negatives: loss"),
        ({"optimizer": {"schedule": "cosine"}}, "schedule cosine needs decay_batches"),
        ({"optimizer": {"floor": 0.1}}, "do nothing with schedule constant"),
        ({"critic": {"lam": 0.5}}, "algorithm grpo has none"),
        ({"reference": {"coefficient": 0.1, "place": "reward"}}, "the plan freezes the advantages of grpo"),
        ({"reference": {"coefficient": 0.1, "kl": "k1"}}, "its gradient is 0 on average"),
        ({"reference": {"place": "reward"}}, "set reference.coefficient"),
        ({"lora": {"alpha": 16}}, "alpha, targets and learning_rate without a rank do nothing"),
        ({"lora": {"rank": -1}}, "lora.rank"),
        ({"lora": {"rank": 4, "targets": []}}, "lora.targets"),
        ({"lora": {"rank": 4, "targets": ["all-linear", "q_proj"]}}, "all-linear has all the others in it"),
        ({"lora": {"rank": 4, "dropout": 0.1}}, "lora.dropout"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, change, named):
    """Wrong, unknown and contradictory settings are refused at load, each in one line that names it."""
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps({**FIELDS, **change}))
    with pytest.raises(SettingsInvalid, match=named) as refused:
        load(["--config", str(path)])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [("run_id: 2026-02-30\n", "day is out of range"), ("spec: " + "[" * 5000, "recursion"), ("run_id: [\n", "parsing")],
    ids=["date", "nested", "open"],
)
def test_a_file_that_is_no_yaml_is_one_line(tmp_path, text, named):
    """Also where YAML finds a date that is none, or gives up."""
    path = tmp_path / "train.yaml"
    path.write_text(text)
    with pytest.raises(SettingsInvalid, match=f"train.yaml: cannot be read: .*{named}") as refused:
        load(["--config", str(path)])
    assert "\n" not in str(refused.value)


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "claw_r1.trainer", *arguments],
        capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False,
    )  # fmt: skip


def test_a_model_directory_that_is_none_is_exit_2(config):
    """One clear line, exit status 2, nothing on stdout, no traceback."""
    done = command("--config", str(config))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.strip().startswith("trainer: model_dir model is no directory")
    assert "\n" not in done.stderr.strip()


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("critic.model_dir", {"spec": {"algorithm": "gae"}, "critic": {"model_dir": "/nowhere"}}),
        ("reference.model_dir", {"reference": {"coefficient": 0.1, "model_dir": "/nowhere"}}),
    ],
)
def test_the_directory_that_is_no_model_is_named_by_its_setting(tmp_path, setting, changes):
    """The policy's is right, and is not blamed for another's."""
    chosen = TrainerSettings(**{**FIELDS, "model_dir": make_model(tmp_path / "model"), **changes})
    with pytest.raises(ModelInvalid, match=f"^{setting} /nowhere is no directory"):
        directories.check(chosen)


def test_a_reference_of_another_vocabulary_is_exit_2_before_torch(tmp_path, config):
    """Told from both config.json, in one line: no weights are read, torch is not imported, no broker is asked."""
    model, other = make_model(tmp_path / "model"), make_model(tmp_path / "other")
    read = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**read, "vocab_size": 40}))
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")
    done = command(
        *("--config", str(config), "--model-dir", str(model)),
        *("--reference.model-dir", str(other), "--reference.coefficient", "0.1"),
        PYTHONPATH=str(tmp_path),
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("has 40 tokens and the policy has 32: they must be the same")
    assert "\n" not in done.stderr.strip()


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_parameters": {"rope_type": "longrope"}},
        {"rope_scaling": {"type": "su"}},
        {"text_config": {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}},
    ],
)
def test_a_model_whose_rows_depend_on_each_other_is_refused_before_torch(tmp_path, config, rope):
    """Rotary frequencies by the longest row of a micro-batch, wherever config.json says so: one line, of a dry run too."""
    model = make_model(tmp_path / "model")
    read = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**read, **rope}))
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")
    done = command("--config", str(config), "--model-dir", str(model), "--dry-run", PYTHONPATH=str(tmp_path))
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith(f"trainer: model_dir {model} has rope_type ")) == (2, True), line


def test_rotary_factors_that_are_fixed_are_no_reason(tmp_path):
    """YaRN's and Llama 3's are worked out once, and so is Hunyuan's `dynamic`, which has an alpha."""
    model = make_model(tmp_path / "model")
    read = json.loads((model / "config.json").read_text())
    for rope in ({"rope_type": "yarn"}, {"rope_type": "llama3"}, {"type": "dynamic", "alpha": 1000.0}):
        (model / "config.json").write_text(json.dumps({**read, "rope_scaling": rope}))
        directories.check(TrainerSettings(**{**FIELDS, "model_dir": model}))


def test_weights_for_everybody_are_exit_2_before_torch(tmp_path, config):
    """Off loopback without the secret: one line that names the variable; no broker is asked, no model is loaded."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")
    where = ("--config", str(config), "--model-dir", str(make_model(tmp_path / "model")), "--offer-host", "0.0.0.0")
    done = command(*where, PYTHONPATH=str(tmp_path), CLAW_WEIGHTS_SECRET=" ")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("trainer: offer_host: weights are served on 0.0.0.0: set CLAW_WEIGHTS_SECRET")


def test_a_dry_run_needs_no_broker(tmp_path, config):
    """Settings and memory stand there, and of the batch why there is none."""
    done = command(
        *("--config", str(config), "--dry-run", "--json", "--set", "zero_stage=2"),
        CLAW_TRAINER_MODEL_DIR=str(make_model(tmp_path / "model")),
        KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1",
        CLAW_LOG_CONNECT_TIMEOUT_S="1",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["settings"]["spec"]["groups_per_batch"] == 3
    assert answer["resolved"]["zero_stage"] == 2
    assert "127.0.0.1:1" in answer["batch"]["unknown"]
    policy = answer["bytes_per_rank"]["policy"]
    assert policy["total"] == sum(value for name, value in policy.items() if name != "total")


def test_a_dry_run_with_lora_says_what_is_trained(tmp_path, monkeypatch):
    """Layers, parameters and rate; of a rank's memory the adapters alone have gradients. A target of no layer is refused
    before a broker is asked."""
    monkeypatch.setenv("CLAW_LOG_CONNECT_TIMEOUT_S", "1")
    model = make_model(tmp_path / "model")
    fields = {**FIELDS, "model_dir": model, "bootstrap_servers": "127.0.0.1:1", "device": "cpu"}
    answer = dry_run(TrainerSettings(**{**fields, "lora": {"rank": 4}}))
    adapters = TrainingEngine(model, EngineSettings(learning_rate=1.0, lora=LoraSettings(rank=4))).adapter_tensors()
    parameters = sum(tensor.numel() for tensor in adapters.values())
    assert answer["resolved"]["lora"] == {"layers": 14, "parameters": parameters, "learning_rate": 5.0}
    assert answer["bytes_per_rank"]["policy"]["gradients"] == 4 * parameters
    assert answer["bytes_per_rank"]["policy"]["optimizer"] == 8 * parameters
    with pytest.raises(
        SettingsInvalid, match=r"^lora\.targets: no linear layer of a model of type qwen3 ends with q_prj,"
    ):
        dry_run(TrainerSettings(**{**fields, "lora": {"rank": 4, "targets": ["k_proj", "q_prj"]}}))


def test_a_missing_library_of_lora_is_one_line(tmp_path, monkeypatch):
    """That names the extra; without a rank nobody asks for it."""
    monkeypatch.setitem(EXTRAS, "lora", ("no_such_library",))
    chosen = TrainerSettings(**{**FIELDS, "lora": {"rank": 4}})
    with pytest.raises(SettingsInvalid, match=r"^lora.rank: no_such_library .* pip install 'claw-r1\[lora\]'$"):
        extras.check(chosen)
    extras.check(TrainerSettings(**FIELDS))


def test_no_broker_is_exit_2(tmp_path, config):
    """A broker that refuses: one clear line, exit status 2."""
    model = make_model(tmp_path / "model")
    done = command(
        "--config",
        str(config),
        CLAW_TRAINER_MODEL_DIR=str(model),
        KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1",
        CLAW_LOG_CONNECT_TIMEOUT_S="1",
    )
    assert done.returncode == 2
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
