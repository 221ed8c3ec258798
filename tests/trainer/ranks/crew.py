"""Ranks as processes of a fork server that has torch and deepspeed loaded: a start costs what the work costs.

Two that live through their tests walk from job to job (`Walk`); those that are to die have processes of their own (`crew`).
"""

import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
import traceback

from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.ranks.follower import _obey, follow
from claw_r1.trainer.ranks.launch import Launched
from claw_r1.trainer.ranks.leader import LedLearner, leading
from claw_r1.trainer.ranks.member import member
from claw_r1.trainer.ranks.place import RankPlace
from tests.children import HEAVY_START_S

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "tests.trainer.ranks.crew",
        "tests.trainer.incarnation",
        "deepspeed",
        "transformers.models.qwen3.modeling_qwen3",
        "torch._inductor.compile_fx",  # DeepSpeed imports it at stage 3
    ]
)
NEXT = "next"
"""A verb that no learner has: rank 0 is done with one job."""


def places(ranks):
    """Of as many ranks, which meet on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return [RankPlace(rank, ranks, rank, "127.0.0.1", port) for rank in range(ranks)]


def crew(folder, lead, settings, *arguments):
    """Processes, rank 0 first: it calls lead(learner, *arguments), the others follow. None is started yet.

    What rank N says goes to `folder`/N.txt.
    """
    own, *others = places(settings.ranks)
    leader = PROCESSES.Process(target=_lead, args=(folder, lead, settings, own, arguments))
    return [leader, *(PROCESSES.Process(target=_follow, args=(folder, settings, place)) for place in others)]


class Walk:
    """Two ranks and one process group, for job after job. After one that failed, others take their place."""

    def __init__(self, folder):
        self._folder = folder
        self._started = 0
        self._processes, self._pipes = [], []

    def __call__(self, lead, settings, *arguments):
        """Rank 0 calls lead(learner, *arguments), the other one follows. Fails with what either said."""
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((lead, settings, arguments))
        answer = self._answer()
        if answer != NEXT:
            self.end()
        assert answer == NEXT, answer

    def end(self):
        """Both processes are gone after it."""
        for process in self._processes:
            process.kill()
            process.join()
        self._processes, self._pipes = [], []

    def _start(self):
        self._started += 1
        folder = self._folder / str(self._started)
        for place in places(2):
            ours, theirs = PROCESSES.Pipe()
            process = PROCESSES.Process(target=_walk, args=(folder, place, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def _answer(self):
        """Of rank 0; its end is one, too."""
        try:
            return self._pipes[0].recv() if self._pipes[0].poll(HEAVY_START_S) else "no answer"
        except EOFError:
            said = sorted((self._folder / str(self._started)).glob("?.txt"))
            return "\n".join(path.read_text()[-2000:] for path in said)


def kill_rank(folder, rank):
    """One that follows."""
    os.kill(int((folder / f"{rank}.pid").read_text()), signal.SIGKILL)


def run(processes, timeout_s=HEAVY_START_S):
    """Starts them, and waits for all; exit codes, None for one that would not end (it is killed)."""
    for process in processes:
        process.start()
    return ended(processes, timeout_s)


def ended(processes, timeout_s=HEAVY_START_S):
    for process in processes:
        process.join(timeout_s)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def _lead(folder, lead, settings, place, arguments):
    gc.freeze()
    _redirect(folder / "0.txt")
    with leading(settings, Launched(place), threading.Event()) as learner:
        lead(learner, *arguments)


def _follow(folder, settings, place):
    gc.freeze()
    _redirect(folder / f"{place.rank}.txt")
    (folder / f"{place.rank}.pid").write_text(str(os.getpid()))
    sys.exit(follow(settings, place))


def _walk(folder, place, jobs):
    """One rank. The process group lasts, as DeepSpeed keeps the one that it saw first."""
    gc.freeze()
    _redirect(folder / f"{place.rank}.txt")
    lead, settings, arguments = jobs.recv()
    with member(settings, place, threading.Event()) as (learner, group):
        while True:
            if place.rank:
                while _obey(learner, group) != NEXT:
                    pass
            else:
                try:
                    lead(LedLearner(learner, group), *arguments)
                except BaseException:
                    jobs.send(traceback.format_exc())
                    raise
                group.send(NEXT)
                with group.performed():
                    pass
                jobs.send(NEXT)
            lead, settings, arguments = jobs.recv()
            with group.watched():
                learner = learner_of(settings)
            group.limit(settings.collective_timeout_s)


def _redirect(path):
    """Where the test that fails can show it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 2)
