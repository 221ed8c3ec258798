"""One conversation that grows, captured turn by turn as the gateway captures it; `bench.deltas` says what is measured."""

import hashlib
import json
import random
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bench.report import Figures
from bench.scripted_replies import SAMPLING, compact
from claw_r1.gateway.callers.callers import Caller
from claw_r1.gateway.capture.delta_encoding import DeltaEncoder
from claw_r1.gateway.capture.events import ModelCall, captured
from claw_r1.gateway.capture.idempotency import Attempt
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.openai.chat import ChatCompletions
from claw_r1.gateway.paths import Identity
from claw_r1.gateway.upstream.engines import Engine
from claw_r1.gateway.upstream.http_upstream import UpstreamReply
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import CallCaptured, Timings
from claw_r1.schemas.http import TOKENS_HEADER, TOKENS_MEMBER

VOCABULARY = 150_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOOLS = [
    {
        "type": "function",
        "function": {"name": f"tool_{n}", "description": "Does a thing. " * 8, "parameters": {"type": "object"}},
    }
    for n in range(6)
]
Message = dict[str, str]


@dataclass
class Conversation:
    """The turns of the agent and the engine. A token is a word and a space, as good as any tokenizer here."""

    rng: random.Random
    messages: list[Message]
    ids: list[int]

    def say(self, role: str, tokens: int) -> list[int]:
        ids = [self.rng.randrange(VOCABULARY) for _ in range(tokens)]
        self.messages.append({"role": role, "content": " ".join(map(word, ids))})
        self.ids += ids
        return ids

    def request(self) -> bytes:
        return json.dumps(
            {"messages": self.messages, "model": "policy", "temperature": 1.0, "tools": TOOLS}, separators=(",", ":")
        ).encode()


def word(token: int) -> str:
    """The text of a token: one to four letters, no two alike."""
    letters = ""
    while token >= 0:
        token, place = divmod(token, len(LETTERS))
        letters += LETTERS[place]
        token -= 1
    return letters


def engine_reply(prompt: list[int], answer: Message, ids: list[int], rng: random.Random) -> UpstreamReply:
    """Returns the reply of a worker that hands its tokens over."""
    choice = {"index": 0, "message": answer, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "policy", "choices": [choice]}
    sampled = {
        "ids": b64encode(pack_ids(ids)).decode(),
        "logprobs": b64encode(pack_floats([-rng.random() for _ in ids])).decode(),
        "spans": [["run/3", 0, len(ids)]],
        "finish": "stop",
    }
    generation = {"prompt": b64encode(pack_ids(prompt)).decode(), "sampling": SAMPLING, "choices": [sampled]}
    member = b"," + TOKENS_MEMBER.encode() + compact([generation])
    return UpstreamReply(200, compact({**body, "usage": usage})[:-1] + member + b"}", {TOKENS_HEADER: str(len(member))})


def capture(number: int, request: bytes, raw: UpstreamReply, deltas: DeltaEncoder) -> tuple[CallCaptured, bytes]:
    """The gateway's work for one call, without its network."""
    protocol = ChatCompletions()
    parsed = protocol.parse(request)
    call = ModelCall(
        producer="gateway/bench",
        caller=Caller(Identity("group", "trajectory"), "path"),
        attempt=Attempt(("group", "trajectory", ""), f"01a1fbff-ff9c-711f-8e35-{number:012x}", 0),
        headers=ClientHeaders(),
        protocol=protocol,
        request=parsed,
        request_digest=hashlib.sha256(request).hexdigest(),
        received_us=number,
    )
    reply = protocol.parse_reply(raw)
    encoded = deltas.encode(call, reply)
    timings = Timings(received_us=number, dispatched_us=number, done_us=number)
    events = captured(call, Engine(url="http://127.0.0.1:8000", model_id="model"), reply, timings, encoded)
    value = encode(events[0])
    deltas.remember(call, reply, encoded, events)
    return events[0], value


class Turn(NamedTuple):
    """A turn of the conversation, captured as the gateway captures it."""

    prompt: list[int]
    request: bytes
    event: CallCaptured
    value: bytes
    """The event as the log has it."""
    cpu_ms: float
    """The gateway's, for this call."""


def conversation(turns: int, tokens: int, deltas: DeltaEncoder) -> Iterator[Turn]:
    """Yields equal turns, a quarter of each the reply."""
    rng = random.Random(7)
    talk, each = Conversation(rng, [], []), tokens // turns
    for number in range(turns):
        talk.say("system" if number == 0 else "user", each - each // 4)
        prompt, request = list(talk.ids), talk.request()
        ids = talk.say("assistant", each // 4)
        raw = engine_reply(prompt, talk.messages[-1], ids, rng)
        started = time.process_time()
        event, value = capture(number, request, raw, deltas)
        yield Turn(prompt, request, event, value, 1000 * (time.process_time() - started))


def output_bytes(event: CallCaptured) -> int:
    """Returns the bytes of what the engine said."""
    return len(event.response_ids) + len(event.response_logprobs) + len(event.response_body)


def measure(turns: int, tokens: int) -> Figures:
    """Both encodings: `deltas` as the gateway writes, `full` without bases."""
    ways = {"deltas": DeltaEncoder(1 << 28, 8), "full": DeltaEncoder(0, 8)}
    return {name: _figures(turns, tokens, way) for name, way in ways.items()}


def _figures(turns: int, tokens: int, deltas: DeltaEncoder) -> Figures:
    log_bytes = outputs = 0
    for turn in conversation(turns, tokens, deltas):
        log_bytes += len(turn.value)
        outputs += output_bytes(turn.event)
    context = 4 * len(turn.prompt) + len(turn.request)
    return {
        "log_bytes": log_bytes,
        "context_bytes": context,
        "output_bytes": outputs,
        "ratio": log_bytes / (context + outputs),
        "last_prompt_tokens": len(turn.prompt),
        "last_call_cpu_ms": turn.cpu_ms,
    }
