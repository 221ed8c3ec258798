"""Ranks as processes of a fork server that has torch and deepspeed loaded: a start costs what the work costs."""

import multiprocessing
import os
import signal
import socket
import sys
import threading

from claw_r1.trainer.ranks.follower import follow
from claw_r1.trainer.ranks.launch import Launched
from claw_r1.trainer.ranks.leader import leading
from claw_r1.trainer.ranks.place import RankPlace
from tests.children import HEAVY_START_S

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["tests.trainer.ranks.crew", "tests.trainer.incarnation", "deepspeed", "transformers.models.qwen3.modeling_qwen3"]
)


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
    _redirect(folder / "0.txt")
    with leading(settings, Launched(place), threading.Event()) as learner:
        lead(learner, *arguments)


def _follow(folder, settings, place):
    _redirect(folder / f"{place.rank}.txt")
    (folder / f"{place.rank}.pid").write_text(str(os.getpid()))
    sys.exit(follow(settings, place))


def _redirect(path):
    """Where the test that fails can show it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 2)
