"""An engine for a first try: it says the last message back, one token per byte, with the fields by which vLLM names tokens.

`python examples/scripted_engine.py 9000` answers `POST /v1/chat/completions` until Ctrl-C; standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def completion(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request in the shape of OpenAI's chat, with the token ids and log-probabilities that the gateway asks for."""
    text = str(request["messages"][-1]["content"])
    sampled = [*text.encode()]
    logprobs = [{"token": chr(id_), "logprob": -0.5, "top_logprobs": []} for id_ in sampled]
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model", "scripted"),
        "choices": [{**choice, "logprobs": {"content": logprobs}, "token_ids": sampled}],
        "prompt_token_ids": [*b"user: ", *sampled],
        "usage": {
            "prompt_tokens": 6 + len(sampled),
            "completion_tokens": len(sampled),
            "total_tokens": 6 + 2 * len(sampled),
        },
    }


class Chat(BaseHTTPRequestHandler):
    """One request at a time per connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(completion(request)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        length = len(request["messages"][-1]["content"].encode())
        self.send_header("x-claw-weight-versions", json.dumps({"0": [["scripted/1", 0, length]]}))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Chat).serve_forever()
