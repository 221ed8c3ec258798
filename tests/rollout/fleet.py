"""Two real workers of one host, a trainer process that publishes all the time, and clients that retry."""

import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]  # a test helper without stubs
import torch

from claw_r1.runtime.processes import child
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import WeightsPublished
from tests import children
from tests.patience import until
from tests.rollout.trainer import last_version
from tests.rollout.worker import ASKS, ROOT, RUN, Worker, changed, gap, spans_of

PERIOD_S = 0.4
ATTEMPT_S = 10.0
"""After this, a client asks the other worker: longer than any stop below, shorter than its own deadline."""
CLIENTS = 4
SLOW_S = children.HEAVY_START_S
GONE_S = 15.0
QUICK = {  # what is given up sooner than in production, so that a test sees it
    "health_timeout_s": 3,
    "control_timeout_s": 5,
    "load_timeout_s": 5,
    "restarts_max": 1000,
}
Spans = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Reply:
    """A call that was answered: after `seconds` and so many attempts."""

    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    spans: Spans
    seconds: float
    attempts: int


@dataclass(slots=True)
class Calls:
    """What became of them. Every call that began is answered once, or is among `lost`."""

    began: int = 0
    replies: list[Reply] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Fleet:
    """Runs from construction to `close`."""

    def __init__(self, model: Path, directory: Path, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.workers = [Worker(model, directory, f"w{number}", **QUICK) for number in range(2)]
        self.base = self.workers[0].base
        self.events = directory / "events"
        self._hold = self.events.with_suffix(".hold")
        self._trainer_log = directory / "trainer.log"
        self._model = model
        self._stop = threading.Event()
        self.start_trainer()
        self.converge()
        self.calls = Calls()
        self._clients = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]
        for client in self._clients:
            client.start()

    def start_trainer(self) -> None:
        """Anew, when the one before is dead."""
        command = [sys.executable, "-m", "tests.rollout.trainer", str(self._model), str(self.events), str(PERIOD_S)]
        with self._trainer_log.open("ab") as errors:
            self.trainer = child.start(command, cwd=ROOT, stderr=errors)

    def converge(self) -> int:
        """Publish nothing more, and wait until both serve the last version and hold one copy. Returns that version."""
        self._hold.touch()
        try:

            def same() -> tuple[int] | None:
                version = last_version(self.events)
                assert self.trainer.poll() is None, self._trainer_log.read_text()[-3000:]
                reports = [worker.last_report() or {} for worker in self.workers]
                at_last = all((each.get("state"), each.get("version")) == ("ready", version) for each in reports)
                return (version,) if at_last and self._copies() == [self._last_digest()] else None

            (version,) = until(same, "both ready with the last version, and one copy of it", patience_s=SLOW_S)
            return version
        finally:
            self._hold.unlink()

    def _copies(self) -> list[str]:
        return sorted(path.name for path in self.workers[0].copies.glob("b3:*"))

    def _last_digest(self) -> str:
        event = decode(bytes.fromhex(self.events.read_text().splitlines()[-1]))
        assert isinstance(event, WeightsPublished)
        return event.digest

    def victim(self, kind: str, number: int) -> psutil.Process:
        """A process of the fleet; `number`: of the worker."""
        if kind == "trainer":
            return psutil.Process(self.trainer.pid)
        if kind == "supervisor":
            return psutil.Process(self.workers[number].process.pid)
        engine = self.workers[number].engine_core()
        return engine if kind == "engine" else engine.parent()

    def wait_for_sync(self, number: int, moment: str) -> None:
        """Until a worker has something to fetch, or has begun to load."""
        worker, version = self.workers[number], last_version(self.events)
        if moment == "fetch":
            until(lambda: last_version(self.events) > version, "a newer version", patience_s=SLOW_S)
        else:
            seen = worker.reports.stat().st_size
            until(lambda: b'"updating"' in worker.reports.read_bytes()[seen:], "a sync", patience_s=SLOW_S)

    def kill(self, kind: str, number: int) -> None:
        """kill -9, and start again what nobody else starts again."""
        worker = self.workers[number]
        below = worker.processes() if kind == "supervisor" else []
        self.victim(kind, number).send_signal(signal.SIGKILL)
        if kind == "trainer":
            self.trainer.wait()
            self.start_trainer()
        elif kind == "supervisor":
            worker.process.wait()
            _, alive = psutil.wait_procs(below, GONE_S)
            assert not alive, f"a killed supervisor left {alive}"
            worker.spawn()

    def stop(self, kind: str, number: int, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while, for whoever still lives."""
        process = self.victim(kind, number)
        process.suspend()
        time.sleep(seconds)
        try:
            process.resume()
        except psutil.NoSuchProcess:  # it was taken for dead, and replaced
            return

    def check(self, replies: list[Reply]) -> None:
        """Every token has the log-probability that the version of its span gives it."""
        for reply in replies:
            ends = [0, *(end for _, _, end in reply.spans)]
            assert [start for _, start, _ in reply.spans] == ends[:-1]
            assert ends[-1] == len(reply.ids)
            for label, start, end in reply.spans:
                run_id, version = label.split("/")
                model = changed(self.base, int(version)) if run_id == RUN else self.base
                with torch.no_grad():
                    logits = model(torch.tensor([reply.prompt + reply.ids])).logits[0].float()
                reference = torch.log_softmax(logits, -1)[len(reply.prompt) - 1 : -1]
                assert gap(reference[start:end], reply.ids[start:end], reply.logprobs[start:end]) <= 1e-4, label

    def _client(self, number: int) -> None:
        dice = random.Random(number)
        with httpx.Client(timeout=ATTEMPT_S) as http:
            while not self._stop.is_set():
                with self.calls.lock:
                    self.calls.began += 1
                reply = self._call(http, dice)
                with self.calls.lock:
                    if isinstance(reply, Reply):
                        self.calls.replies.append(reply)
                    else:
                        self.calls.lost.append(reply)

    def _call(self, http: httpx.Client, dice: random.Random) -> Reply | str:
        body: dict[str, Any] = {
            "model": "policy",
            "messages": [{"role": "user", "content": f"hello {dice.random():.3f}"}],
            "return_token_ids": True,
            "logprobs": True,
            "ignore_eos": True,
            "max_tokens": dice.randint(8, 160),
        }
        began, attempts, failures = time.monotonic(), 0, list[str]()
        while time.monotonic() - began < self.deadline_s:
            attempts += 1
            for worker in dice.sample(self.workers, 2):
                report = worker.last_report()
                if report is None or report["state"] not in ("ready", "updating"):
                    continue
                try:
                    answer = http.post(f"{report['url']}/v1/chat/completions", json=body, headers=ASKS)
                    if answer.status_code == 200 and "claw_tokens" in answer.json():
                        return _reply(answer, time.monotonic() - began, attempts)
                    failures.append(f"{answer.status_code} {answer.text[:80]}")
                except httpx.HTTPError as error:
                    failures.append(repr(error))
            time.sleep(0.1)
        return f"{attempts} attempts in vain: {failures[-3:]}"

    def close(self) -> None:
        """Leaves no process."""
        self._stop.set()
        try:
            for client in getattr(self, "_clients", ()):
                client.join(self.deadline_s + ATTEMPT_S)
        finally:
            children.end(self.trainer)
            for worker in self.workers:
                worker.close()


def _reply(answer: httpx.Response, seconds: float, attempts: int) -> Reply:
    body = answer.json()
    choice = body["choices"][0]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return Reply(body["prompt_token_ids"], choice["token_ids"], logprobs, spans_of(answer)["0"], seconds, attempts)
