"""What a worker hands over besides its reply, in any protocol, for the scripted engine."""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.http import TOKENS_COMMENT, TOKENS_MEMBER

SAMPLING: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "max_tokens": 9,
    "top_k": 0,
    "seed": None,
    "n": 1,
    "stop": [],
    "constrained": False,
}
PROMPT, IDS, LOGPROBS = [1, 5, 6, 7], [11, 12, 2], [-0.5, -0.25, -1.0]


def choice(ids: Sequence[int] = IDS, logprobs: Sequence[float] = LOGPROBS, **more: Any) -> dict[str, Any]:
    """One sampled response, all of it by `run/3`."""
    return {
        "ids": b64encode(pack_ids(ids)).decode(),
        "logprobs": b64encode(pack_floats(logprobs)).decode(),
        "spans": [["run/3", 0, len(ids)]] if ids else [],
        "finish": "stop",
        **more,
    }


def generation(*choices: dict[str, Any], prompt: Sequence[int] = PROMPT, **sampling: Any) -> dict[str, Any]:
    """One generation of the engine; one choice where none is named."""
    return {
        "prompt": b64encode(pack_ids(prompt)).decode(),
        "cached": 2,
        "sampling": {**SAMPLING, **sampling},
        "choices": list(choices or (choice(),)),
    }


def member(*generations: dict[str, Any]) -> bytes:
    """The last member of a JSON reply, with its comma."""
    listed = json.dumps(list(generations or (generation(),)), separators=(",", ":")).encode()
    return b"," + TOKENS_MEMBER.encode() + listed


def comment(*generations: dict[str, Any]) -> bytes:
    """The comment that stands before a stream's end."""
    return TOKENS_COMMENT.encode() + json.dumps(list(generations or (generation(),))).encode() + b"\n\n"
