"""The demo's policy in a real engine: what its tokenizer and its chat template promise to whoever merges calls."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from claw_r1.claw.demo.models.tokenizer import END, build_tokenizer
from claw_r1.claw.demo.verbs.flow import SAMPLING
from claw_r1.claw.demo.verbs.judge import MODEL
from tests.patience import PATIENCE_S
from tests.soak import only_in_soak

SCRIPT = ({"role": "user", "content": "find c"}, {"role": "tool", "tool_call_id": "turn-1", "content": "c=7"})
CONVERSATIONS = 64

Json = dict[str, Any]


@only_in_soak  # an engine for it alone; tests/e2e/test_survival.py plays with it in `make test`, where a turn that does not extend the last is no batch
@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_serves_it_and_turns_extend(policy_engine: str) -> None:
    """Replies that stopped end with the end id in their ids but not in their text, and the next prompt extends them."""
    end = build_tokenizer().convert_tokens_to_ids(END)
    stopped = 0
    with httpx.Client(base_url=policy_engine, timeout=PATIENCE_S) as http, ThreadPoolExecutor(16) as pool:
        turns = list(pool.map(lambda seed: two_turns(http, seed), range(CONVERSATIONS)))
    for first, second in turns:
        (choice,) = first["choices"]
        ids, text = choice["token_ids"], choice["message"]["content"]
        assert (ids[-1] == end) == (choice["finish_reason"] == "stop")
        if "\N{REPLACEMENT CHARACTER}" not in text:
            stopped += choice["finish_reason"] == "stop"
            assert END not in text
            before = [*first["prompt_token_ids"], *ids]
            assert second["prompt_token_ids"][: len(before)] == before
    assert stopped >= CONVERSATIONS / 2


def two_turns(http: httpx.Client, seed: int) -> list[Json]:
    """The replies to the script, whatever the model says."""
    messages: list[Json] = []
    replies: list[Json] = []
    for message in SCRIPT:
        messages.append(message)
        body = {"model": MODEL, "messages": messages, "seed": seed, "return_token_ids": True, **SAMPLING}
        replies.append(http.post("/v1/chat/completions", json=body).raise_for_status().json())
        messages.append({"role": "assistant", "content": replies[-1]["choices"][0]["message"]["content"]})
    return replies
