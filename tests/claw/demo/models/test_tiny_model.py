import hashlib
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from claw_r1.claw.demo.models.tiny_model import Recipe, main
from claw_r1.claw.demo.verbs.environment import CALLS_MAX, Task, judge
from claw_r1.claw.demo.verbs.tiny_model import ensure
from tests.caches import CACHE
from tests.soak import in_soak

BRIEF = Recipe(steps=2, batch_dialogues=4)


def bytes_of(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_the_bytes_are_a_function_of_the_seed(tmp_path: Path) -> None:
    """Two builds of a seed are equal byte by byte, whatever random state they start from; another seed differs."""
    first = ensure(tmp_path / "a", 0, BRIEF)
    torch.manual_seed(99)
    again, other = ensure(tmp_path / "b", 0, BRIEF), ensure(tmp_path / "b", 1, BRIEF)
    assert bytes_of(first) == bytes_of(again)
    assert bytes_of(first)["model.safetensors"] != bytes_of(other)["model.safetensors"]


def test_the_caller_keeps_its_random_state(tmp_path: Path) -> None:
    """Making a model moves neither torch's generator nor its thread count."""
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    ensure(tmp_path, 0, BRIEF)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads


def test_a_cached_model_is_not_made_again(tmp_path: Path) -> None:
    """The directory is named after seed and recipe: the same ones find it, another recipe does not, no draft stays."""
    made = ensure(tmp_path, 0, BRIEF)
    (made / "mark").touch()
    assert (ensure(tmp_path, 0, BRIEF) / "mark").exists()
    other = ensure(tmp_path, 0, Recipe(steps=1, batch_dialogues=4))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([made.name, other.name])


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A directory appears whole or not at all."""
    with pytest.raises(ZeroDivisionError):
        ensure(tmp_path, 0, Recipe(steps=1, batch_dialogues=4, heads=0))
    assert list(tmp_path.iterdir()) == []


@torch.no_grad()
def returns(directory: Path, episodes: int, sampled: bool) -> list[float]:
    """Play the environment with Hugging Face's own generate, all episodes in step."""
    torch.manual_seed(0)
    tokenizer, model = AutoTokenizer.from_pretrained(directory), AutoModelForCausalLM.from_pretrained(directory)
    tasks = [Task.from_seed(10_000 + number) for number in range(episodes)]
    talks = {i: [{"role": "user", "content": task.observations[0]}] for i, task in enumerate(tasks)}
    earned = [0.0] * episodes
    for turn in range(CALLS_MAX):
        if not talks:
            break
        batch = tokenizer.apply_chat_template(
            list(talks.values()), add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        replies = model.generate(**batch, max_new_tokens=7, do_sample=sampled, temperature=1.0, top_k=0, top_p=1.0)
        for (i, talk), ids in zip(list(talks.items()), replies[:, batch["input_ids"].shape[1] :], strict=True):
            text = tokenizer.decode(ids, skip_special_tokens=False).split("<|end|>")[0]
            judged = judge(tasks[i], turn, text)
            earned[i] += judged.reward
            if judged.observation is None:
                del talks[i]
            else:
                talk += [{"role": "assistant", "content": text}, {"role": "tool", "content": judged.observation}]
    return earned


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, in_soak(1)])
def test_learning_can_start_and_has_not_happened(seed: int) -> None:
    """After the warm-up sampled play earns between 0.05 and 0.2, greedy play nothing: the policy is RL's to find."""
    directory = ensure(CACHE / "models", seed)
    assert fmean(returns(directory, 128, sampled=False)) == 0.0
    assert 0.05 < fmean(returns(directory, 512, sampled=True)) < 0.2


def test_the_path_that_is_printed_can_be_linked_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative `--out` is resolved; demonstrations are a file of one's own, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("claw_r1.claw.demo.models.tiny_model.ensure", lambda out, module, seed: out / module.SHORT)
    (tmp_path / "mine.py").write_text("SHORT = 'mine'\ndemonstration = RECIPE = None\n")
    main(["mine.py", "--out", "models"])
    assert capsys.readouterr().out.strip() == str(tmp_path / "models" / "mine")


@pytest.mark.parametrize(
    ("place", "code", "says"),
    [
        ("gone.py", None, "FlowNotFound: no file 'gone.py'"),
        ("no.such.module", None, "ModuleNotFoundError: No module named 'no'"),
        ("slip.py", "def demonstration(rng:", "SyntaxError: "),
        ("slip.py", "import no_such_module", "ModuleNotFoundError: "),
        ("slip.py", "def demonstration(rng): return []", "'slip.py' has no `RECIPE`"),
        ("slip.py", "RECIPE = None", "'slip.py' has no `demonstration`"),
    ],
)
def test_demonstrations_that_are_none_are_refused_in_one_line(
    place: str,
    code: str | None,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 2 and nothing on stdout, where a shell reads the path; no model is begun."""
    monkeypatch.chdir(tmp_path)
    if code is not None:
        (tmp_path / place).write_text(code)
    assert main([place, "--out", "models"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith("tiny_model: ")
    assert says in printed.err
    assert not (tmp_path / "models").exists()
