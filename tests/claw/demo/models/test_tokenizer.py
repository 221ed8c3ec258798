import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from claw_r1.claw.demo.models.tokenizer import ROLES, SPECIALS, build_tokenizer
from claw_r1.claw.demo.verbs.environment import Task, right_call

TOKENIZER = build_tokenizer()
END = TOKENIZER.eos_token_id
BYTES = len(TOKENIZER) - len(SPECIALS)


def prompt_of(messages: list[dict[str, str]]) -> list[int]:
    """The prompt as the engine renders it for a chat request."""
    ids: list[int] = TOKENIZER.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return ids


def text_of(response: list[int]) -> str:
    """The content that vLLM sends: without the end token that stopped it, marks shown (skip_special_tokens=False)."""
    spoken = response[:-1] if response[-1:] == [END] else response
    return str(TOKENIZER.decode(spoken, skip_special_tokens=False))


def continued(messages: list[dict[str, str]], response: list[int]) -> tuple[list[int], list[int]]:
    """(what was there: prompt + response, the next prompt after the client sent the text back)."""
    reply = {"role": "assistant", "content": text_of(response)}
    before = prompt_of(messages) + response
    return before, prompt_of([*messages, reply, {"role": "tool", "content": "c=7"}])


@given(st.integers(0, 2**32))
def test_an_episode_is_one_sequence(seed: int) -> None:
    """Each prompt extends the one before and its sampled ids, the end token included, exactly."""
    messages: list[dict[str, str]] = []
    sequence: list[int] = []
    for index, observation in enumerate(Task.from_seed(seed).observations):
        messages.append({"role": "tool" if index else "user", "content": observation})
        prompt = prompt_of(messages)
        assert prompt[: len(sequence)] == sequence
        sampled = [*TOKENIZER.encode(right_call(observation), add_special_tokens=False), END]
        messages.append({"role": "assistant", "content": text_of(sampled)})
        sequence = prompt + sampled


@given(st.text(min_size=1))
def test_any_text_that_was_stopped_by_the_end_extends(text: str) -> None:
    """Whatever text was sampled byte by byte, the next prompt extends prompt + response by exact ids."""
    response = [*TOKENIZER.encode(text, add_special_tokens=False), END]
    before, after = continued([{"role": "user", "content": "find c"}], response)
    assert after[: len(before)] == before


@given(st.lists(st.integers(BYTES, len(TOKENIZER) - 1).filter(lambda token: token != END), min_size=1))
def test_sampled_marks_extend(marks: list[int]) -> None:
    """Marks within an answer are shown, so they too come back as the ids that were sampled."""
    before, after = continued([{"role": "user", "content": "find c"}], [*marks, END])
    assert after[: len(before)] == before


def test_a_truncated_answer_extends_by_the_end_as_context() -> None:
    """Cut by max_tokens there is no sampled end; the template writes it, so it is context and not trained on."""
    response = TOKENIZER.encode("get cc ", add_special_tokens=False)
    before, after = continued([{"role": "user", "content": "find c"}], response)
    assert after[: len(before) + 1] == [*before, END]


def test_stray_bytes_do_not_extend() -> None:
    """Bytes that are no UTF-8 come back as the replacement character: such calls fork, which the trainer sees by ids."""
    stray = TOKENIZER.encode("é", add_special_tokens=False)[:1]
    before, after = continued([{"role": "user", "content": "find c"}], [*stray, END])
    assert after[: len(before)] != before


@given(st.lists(st.integers(0, len(TOKENIZER) - 1)))
@settings(max_examples=200)
def test_every_id_decodes(ids: list[int]) -> None:
    """There is no id below the vocabulary's size that the tokenizer cannot decode."""
    assert isinstance(TOKENIZER.decode(ids), str)
    assert all(TOKENIZER.convert_ids_to_tokens(ids))


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_one_mark(role: str) -> None:
    """A role is one id, its content the bytes, then the end; no content (a tool call only) is no bytes."""
    mark = TOKENIZER.convert_tokens_to_ids(f"<|{role}|>")
    render = {"role": role, "content": "ab"}
    assert TOKENIZER.apply_chat_template([render], tokenize=True, return_dict=False) == [
        mark,
        *TOKENIZER.encode("ab", add_special_tokens=False),
        END,
    ]
    assert TOKENIZER.apply_chat_template([{**render, "content": None}], tokenize=True, return_dict=False) == [mark, END]


def test_it_survives_saving(tmp_path: object) -> None:
    """Loaded from its directory it renders and decodes as before."""
    TOKENIZER.save_pretrained(str(tmp_path))
    loaded = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    messages = [{"role": "user", "content": "find é"}, {"role": "assistant", "content": "get é"}]
    assert loaded.apply_chat_template(messages, tokenize=True, return_dict=False) == TOKENIZER.apply_chat_template(
        messages, tokenize=True, return_dict=False
    )
    assert (loaded.eos_token_id, loaded.pad_token_id) == (END, TOKENIZER.pad_token_id)
