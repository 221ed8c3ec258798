"""An engine for a first try: it says the last message back, one token per byte, and hands its tokens over as workers do.

`python examples/scripted_engine.py 9000` answers `POST /v1/chat/completions` until Ctrl-C; standard library only.
"""

import json
import sys
from array import array
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}


def completion(text: str) -> dict[str, Any]:
    """The reply in the shape of OpenAI's chat."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "scripted", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}


def handed_over(text: str) -> list[dict[str, Any]]:
    """Returns what was sampled: the prompt's ids, and per choice the ids (int32), log-probabilities (float32) and policy versions."""
    sampled = [*text.encode()]
    choice = {
        "ids": _packed("i", sampled),
        "logprobs": _packed("f", [-0.5] * len(sampled)),
        "spans": [["scripted/1", 0, len(sampled)]],
        "finish": "stop",
    }
    return [{"prompt": _packed("i", [*b"user: ", *sampled]), "sampling": SAMPLING, "choices": [choice]}]


def _packed(kind: str, numbers: list[Any]) -> str:
    return b64encode(array(kind, numbers).tobytes()).decode()


class Chat(BaseHTTPRequestHandler):
    """One request at a time per connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = str(request["messages"][-1]["content"])
        body, member = json.dumps(completion(text)).encode(), b""
        if "x-claw-tokens" in self.headers:  # the gateway asks, and cuts this last member out again
            member = b',"claw_tokens":' + json.dumps(handed_over(text)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body) + len(member)))
        if member:
            self.send_header("x-claw-tokens", str(len(member)))
        self.end_headers()
        self.wfile.write(body[:-1] + member + b"}")


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Chat).serve_forever()
