"""Ranks as processes of a fork server that has torch and deepspeed loaded: a start costs what the work costs."""

import multiprocessing
import socket
import threading

from tests.children import HEAVY_START_S
from trainer.ranks.place import Place

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.trainer.incarnation", "deepspeed", "transformers.models.qwen3.modeling_qwen3"])


def places(ranks):
    """Of as many ranks, which meet on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return [Place(rank, ranks, rank, "127.0.0.1", port) for rank in range(ranks)]


def crew(ranks, lead, settings, *arguments):
    """Processes, rank 0 first: it calls lead(learner, *arguments), the others follow. None is started yet."""
    own, *others = places(ranks)
    leader = PROCESSES.Process(target=_lead, args=(lead, settings, own, arguments))
    return [leader, *(PROCESSES.Process(target=_follow, args=(settings, place)) for place in others)]


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


def _lead(lead, settings, place, arguments):
    from trainer.ranks.launch import Launched
    from trainer.ranks.leader import leading

    stop = threading.Event()
    with leading(settings, Launched(place), stop) as learner:
        lead(learner, *arguments)


def _follow(settings, place):
    import sys

    from trainer.ranks.follower import follow

    sys.exit(follow(settings, place))
