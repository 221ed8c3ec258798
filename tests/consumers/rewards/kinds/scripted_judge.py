"""A server of chat completions that does what a test says, request by request."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass
class Answered:
    """What is sent; a status of 0 is nothing at all: the connection is closed, or held for as long as `wait_s`."""

    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


def says(text: str | None, **choice: Any) -> Answered:
    """A completion of 10 + 2 tokens."""
    reply = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, **choice}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    }
    return Answered(content=json.dumps(reply).encode())


@dataclass
class ScriptedJudge:
    """`answer` is called with each request's body and its number from 0, in any thread."""

    url: str
    answer: Callable[[Body, int], Answered]
    requests: list[tuple[Body, dict[str, str]]] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0

    @property
    def keys(self) -> list[str]:
        """Idempotency keys in the order of the requests."""
        return [headers["x-claw-idempotency-key"] for _, headers in self.requests]


@contextmanager
def scripted(answer: Callable[[Body, int], Answered]) -> Iterator[ScriptedJudge]:
    """On a free port while the block lasts."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(judge.requests)
                judge.requests.append((body, {name.lower(): value for name, value in self.headers.items()}))
                judge.busy += 1
                judge.busiest = max(judge.busiest, judge.busy)
            answered = judge.answer(body, number)
            time.sleep(answered.wait_s)
            with lock:
                judge.busy -= 1
            self.close_connection = not answered.status
            if not answered.status:
                return
            self.send_response(answered.status)
            for name, value in {"content-length": str(len(answered.content)), **answered.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answered.content)

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that left are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    judge = ScriptedJudge(f"http://127.0.0.1:{server.server_port}", answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
