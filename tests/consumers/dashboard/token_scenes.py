"""Calls with real ids of a byte-level tokenizer: what they say, and what sampled them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import orjson
from tokenizers import Tokenizer

from claw_r1.claw.demo.models.tokenizer import END, build_tokenizer
from claw_r1.consumers.dashboard.tokens.pieces import SYMBOLS
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import (
    BatchAssembled,
    CallCaptured,
    Edge,
    FactPosition,
    PlannedStep,
    PlannedTrajectory,
    RunStarted,
    VersionSpan,
)
from tests import facts
from tests.consumers.dashboard.stage import body


def write_tokenizer(folder: Path, corpus: Sequence[str] = ()) -> Tokenizer:
    """The demo's, in a model directory."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(corpus, 256 + 40 * bool(corpus)).backend_tokenizer
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def sampled(
    tokenizer: Tokenizer,
    call_id: str,
    question: str,
    reply: str | bytes,
    base: CallCaptured | None = None,
    **changes: object,
) -> CallCaptured:
    """A call of trajectory g/t, with a prompt that goes on from its base. reply: bytes may end inside a character."""
    added = tokenizer.encode(f"<|user|>{question}{END}<|assistant|>").ids
    if isinstance(reply, bytes):  # an id of this tokenizer without a corpus is a byte
        by_byte = {SYMBOLS[word]: number for word, number in tokenizer.get_vocab().items() if word in SYMBOLS}
        ids = [by_byte[each] for each in reply]
    else:
        ids = tokenizer.encode(reply + END).ids
    before = b"" if base is None else _whole(base)
    whole = before + pack_ids(added)
    edge = Edge(
        base_call_id=base and base.call_id,
        keep=len(before) // 4,
        suffix=pack_ids(added),
        full_length=len(whole) // 4,
        full_digest=hashlib.sha256(whole).hexdigest(),
    )
    _, request = body({"messages": [{"role": "user", "content": question}]})
    text = reply if isinstance(reply, str) else reply.decode(errors="replace")
    answer, _ = body({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})
    half = len(ids) // 2
    fields = {
        "ids": tuple(ids),
        "prompt": edge,
        "base_digest": "" if base is None else facts.written_against(base, len(before) // 4),
        "response_logprobs": pack_floats([-0.01 - (n % 7) / 3 for n in range(len(ids))]),
        "spans": (
            VersionSpan(run_id="run", version=3, start=0, end=half),
            VersionSpan(run_id="run", version=4, start=half, end=len(ids)),
        ),
        "request": request,
        "response_body": answer,
        **changes,
    }
    PROMPTS[call_id] = whole
    return facts.call("g", "t", call_id, **fields)


PROMPTS: dict[str, bytes] = {}
"""Whole prompts by call."""


def _whole(call: CallCaptured) -> bytes:
    return PROMPTS[call.call_id] + call.response_ids


def run_started(model_dir: Path, run_id: str = "run") -> RunStarted:
    return RunStarted(
        envelope=facts.envelope(),
        run_id=run_id,
        model_id="tiny",
        incarnation=0,
        config=orjson.dumps({"model_dir": str(model_dir)}).decode(),
        group_size=1,
        groups_per_batch=1,
        staleness_max=1,
        facts_prefix="claw",
    )


def planned(
    trained: Sequence[str], masked: Sequence[str] = (), *, advantage: float = 0.5, oldest: int | None = None
) -> BatchAssembled:
    """Batch 0 of the run, with trajectory g/t."""
    place = FactPosition(topic="claw.calls", partition=0, offset=0)
    steps = [PlannedStep(call_id=c, position=place, digest="", trained=c in trained) for c in (*trained, *masked)]
    return BatchAssembled(
        envelope=facts.envelope(),
        run_id="run",
        sequence=0,
        version=4,
        spec=orjson.dumps({"algorithm": "grpo"}).decode(),
        trajectories=(
            PlannedTrajectory(group_id="g", trajectory_id="t", reward=1.0, advantage=advantage, steps=tuple(steps)),
        ),
        seed=0,
        oldest_version=oldest,
    )


TIMED = """
(() => {
  const began = performance.now();
  new MutationObserver((_, observer) => {
    if (!document.querySelector('.token.h7')) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.tookMs = performance.now() - began; }));
  }).observe(document.body, { childList: true, subtree: true });
  dispatchEvent(new KeyboardEvent('keydown', { key: ']', bubbles: true }));
})()
"""
"""In a page with a view of tokens: `tookMs` is the time from the key for the next call until its tokens are painted with their heat."""
