import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claw_r1.claw.demo.models.tokenizer import END, build_tokenizer
from claw_r1.claw.demo.verbs.tiny_model import ensure
from claw_r1.runtime.child import start
from tests import children
from tests.models import MODELS

ONE_THREAD = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(Path(__file__).parents[3]),
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
}


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_serves_it_and_turns_extend() -> None:
    """Replies that stopped end with the end id in their ids but not in their text, and the next prompt extends them."""
    directory = ensure(MODELS, 0)
    child = [sys.executable, str(Path(__file__).with_name("chat_in_engine.py")), str(directory)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(child, env=os.environ | ONE_THREAD, text=True, **pipes)
    try:
        said, errors = process.communicate(timeout=children.HEAVY_START_S)
    finally:
        children.end(process)
    assert process.returncode == 0, errors[-3000:]
    first, second = json.loads(said.splitlines()[-1])
    end = build_tokenizer().convert_tokens_to_ids(END)
    stopped = 0
    for (prompt, response, text, reason), (next_prompt, *_) in zip(first, second, strict=True):
        assert (response[-1] == end) == (reason == "stop")
        if "\N{REPLACEMENT CHARACTER}" not in text:
            stopped += reason == "stop"
            assert END not in text
            assert next_prompt[: len(prompt) + len(response)] == prompt + response
    assert stopped >= 32
