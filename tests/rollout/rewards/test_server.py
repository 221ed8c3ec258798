"""`claw rewards serve` with a real vLLM, before the kind that asks it, against transformers."""

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from claw_r1.claw.demo.verbs import reward_model
from claw_r1.claw.demo.verbs.reward_model import LabelledEpisode, labelled_episode
from claw_r1.claw.local.ports import free_ports
from claw_r1.consumers.rewards.judged import Judged, JudgedCall
from claw_r1.consumers.rewards.kinds import kind_of
from claw_r1.consumers.rewards.scorer import GaveUp
from claw_r1.runtime.processes.child import start
from tests import children
from tests.consumers.rewards.scripted_http import serving as answering
from tests.patience import until
from tests.soak import SOAK, only_in_soak

ROOT = Path(__file__).parents[3]
EPISODES = 200
GAP_MAX = 1e-4
"""In logits."""
AUC_MIN = 0.9

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained in `make soak`, where what it says is worth something; else what it says is compared alone."""
    recipe = reward_model.SHAPE if SOAK else replace(reward_model.SHAPE, steps=3)
    return reward_model.ensure(tmp_path_factory.mktemp("models"), recipe=recipe)


@contextmanager
def server(model: Path, log: Path, *flags: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Its URL and its process, from the ready line on."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "claw_r1.rollout.rewards", "--model", str(model), "--port", str(port), *flags]
    with log.open("wb") as errors:
        process = start(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.endswith(f"at http://127.0.0.1:{port}\n"), f"{line!r} {log.read_text()[-3000:]}"
        yield f"http://127.0.0.1:{port}", process
    finally:
        children.end(process)


def episodes() -> list[LabelledEpisode]:
    rng = random.Random(99)
    return [labelled_episode(rng) for _ in range(EPISODES)]


def by_transformers(model: Path, conversations: Sequence[list[dict[str, str]]]) -> list[list[float]]:
    """The logit behind each token of each conversation."""
    reference = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = [tokenizer.apply_chat_template(each, tokenize=True, return_dict=False) for each in conversations]
    with torch.no_grad():
        for row in rows[:1]:  # what is compared below is what the model's own forward says
            whole = reference(torch.tensor([row])).logits[0, 0]
            assert whole == pytest.approx(float(reference.score(reference.model(torch.tensor([row]))[0])[0, -1, 0]))
        return [reference.score(reference.model(torch.tensor([row]))[0])[0, :, 0].tolist() for row in rows]


def trajectory(episode: LabelledEpisode) -> Judged:
    messages = tuple(episode.messages)
    calls = tuple(
        JudgedCall(call_id=str(at), messages=messages[:at], reply=messages[at]) for at in range(1, len(messages), 2)
    )
    return Judged(scope="trajectory", group_id="g", trajectory_id="t", calls=calls, conversation=messages)


def judged(url: str, subjects: Sequence[Judged], **settings: Any) -> list[tuple[float | None, ...]]:
    base = {"source": "model", "name": "solved", "use": "pooling", "version": 1, "url": url, "timeout_s": 60}
    kind = kind_of("pooling")
    scorer = kind.open(kind.settings.model_validate({"scope": "trajectory", **base, **settings}))
    try:
        return [future.result(120).values for future in scorer.judge(subjects)]
    finally:
        scorer.close()


def auc(above: Sequence[float], below: Sequence[float]) -> float:
    """The share of pairs that are in order."""
    return sum((a > b) + 0.5 * (a == b) for a in above for b in below) / (len(above) * len(below))


def steps(episode: LabelledEpisode) -> Judged:
    whole = trajectory(episode)
    return Judged(scope="steps", group_id="g", calls=whole.calls, conversation=whole.conversation)


@pytest.mark.soak
def test_what_it_says_is_what_transformers_says(model: Path, tmp_path: Path) -> None:
    """Raw logits within 1e-4, per episode and per step; an over-long one fails or is cut; and nothing is left afterwards.

    Of a trained model, solved episodes stand above failed ones.
    """
    played = episodes()
    reference = by_transformers(model, [episode.messages for episode in played])
    with server(model, tmp_path / "log") as (url, process):
        logits = [values[0] for values in judged(url, [trajectory(episode) for episode in played])]
        by_step = judged(url, [steps(episode) for episode in played[:50]], scope="steps")
        long = Judged(scope="trajectory", group_id="g", conversation=({"role": "user", "content": "x" * 4000},))
        with pytest.raises(GaveUp) as too_long:
            judged(url, [long])
        (cut,) = judged(url, [long], truncate=True)
        with pytest.raises(GaveUp) as other:
            judged(url, [trajectory(played[0])], endpoint="pooling")
        with pytest.raises(GaveUp) as no_model:
            judged(url, [trajectory(played[0])], model="nobody")
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        assert children.end(process) == 0
    engine_logits = [logit for logit in logits if logit is not None]
    assert max(abs(logit - row[-1]) for logit, row in zip(engine_logits, reference, strict=True)) <= GAP_MAX
    solved = [logit for logit, episode in zip(engine_logits, played, strict=True) if episode.solved]
    failed = [logit for logit, episode in zip(engine_logits, played, strict=True) if not episode.solved]
    assert max(engine_logits) - min(engine_logits) > 100 * GAP_MAX, "all alike: nothing was compared"
    if SOAK:
        assert auc(solved, failed) >= AUC_MIN
    assert [values[-1] for values in by_step] == pytest.approx(engine_logits[:50], abs=GAP_MAX)
    assert [len(values) for values in by_step] == [len(episode.faultless) for episode in played[:50]]
    assert (too_long.value.reason, other.value.reason, no_model.value.reason) == (
        "too_long",
        "wrong_shape",
        "wrong_shape",
    )
    assert isinstance(cut[0], float)
    until(lambda: all(map(children.is_gone, tree)), "nothing left")


@only_in_soak
def test_rows_per_token_at_the_ends_of_replies_are_the_steps(model: Path, tmp_path: Path) -> None:
    """token_classify on the same weights: the row behind each reply is transformers' logit at that token."""
    played = episodes()[:30]
    tokenizer = AutoTokenizer.from_pretrained(model)
    reference = by_transformers(model, [episode.messages for episode in played])
    with server(model, tmp_path / "log", "--task", "token_classify") as (url, _):
        rows = judged(url, [steps(episode) for episode in played], scope="steps", endpoint="pooling")
    for episode, row, values in zip(played, reference, rows, strict=True):
        ids = tokenizer.apply_chat_template(episode.messages, tokenize=True, return_dict=False)
        ends = [at for at, token in enumerate(ids) if token == tokenizer.eos_token_id][1::2]
        assert values == pytest.approx([row[end] for end in ends], abs=GAP_MAX)


def refused(*flags: str) -> str:
    """The one line of a server that does not start."""
    process = subprocess.run(
        [sys.executable, "-m", "claw_r1.rollout.rewards", *flags], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 2, process.stderr
    (line,) = process.stderr.splitlines()
    return line


def test_what_cannot_start_says_so_in_one_line(tmp_path: Path) -> None:
    from claw_r1.claw.demo.models.tokenizer import build_tokenizer

    assert "no directory" in refused("--model", str(tmp_path / "none"), "--device", "cpu")
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    (tmp_path / "model.safetensors").touch()
    assert "no chat template" in refused("--model", str(tmp_path), "--device", "cpu")
    build_tokenizer().save_pretrained(tmp_path)
    assert "Qwen3ForCausalLM" in refused("--model", str(tmp_path), "--device", "cpu")
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForSequenceClassification"]}')
    with answering(lambda _: 0.0) as (url, _):
        port = url.rsplit(":", 1)[1].strip("/")
        assert "cannot listen" in refused("--model", str(tmp_path), "--device", "cpu", "--port", port)
