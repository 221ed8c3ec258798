"""Rules that do what rules should not. The tests name them as `bad_rules:NAME`, with this folder as the working directory."""

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import time
from pathlib import Path

from claw_r1.consumers.rewards.functions.worker import PROGRESS
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.verdict import Verdict


def of_tag(judged: Judged):
    """What the subject's first tag says: a number, or something bad."""
    word = judged.tags[0]
    return BAD[word]() if word in BAD else float(word)


def hang():
    time.sleep(1000)


def hang_against_signals():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        pass


def leave():
    os._exit(0)


def fork_and_return():
    """Both processes go on."""
    os.fork()
    return 0.5


def daemonise(name="claw-rule-daemon"):
    """Leaves a process behind that is in another session, and nobody's child."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(99)", name]
            os.execv(sys.executable, [*command, os.environ["RULE_MARK"]])
        os._exit(0)
    os.wait()
    return 0.5


def daemonise_and_leave():
    daemonise("claw-rule-orphan")
    time.sleep(0.3)
    os._exit(0)


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def eat():
    return len([bytearray(1 << 20) for _ in range(1 << 20)])


def shout():
    for _ in range(200):
        sys.stdout.write("x" * 65536)
        sys.stderr.write("x" * 65536)
    return 0.5


def close_everything():
    os.closerange(0, 1000)
    return 0.5


def scribble(data=b"\xff" * 64):
    """Into every descriptor that it can write to, and goes on as if nothing were."""
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(fd, data)
    return 0.5


def lie(since_s):
    """Into the memory that tells our watch since when we work, and works on."""
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            if "claw-rule" in str(Path(f"/proc/self/fd/{fd}").readlink()):
                os.pwrite(fd, PROGRESS.pack(0, since_s), 0)
    time.sleep(30)
    return 0.5


def shut():
    """Nobody hears any more what the process says."""
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
    return 0.5


def interrupt():
    raise KeyboardInterrupt


def boom():
    raise LookupError("two\nlines " + "x" * 5000)


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError


def unspeakable():
    raise Unspeakable


BAD = {
    "hang": hang,
    "busy": hang_against_signals,
    "leave": leave,
    "fork": fork_and_return,
    "daemon": daemonise,
    "orphan": daemonise_and_leave,
    "segfault": segfault,
    "eat": eat,
    "shout": shout,
    "close": close_everything,
    "scribble": scribble,
    "frame": lambda: scribble(b"\0\0\0\2ab"),
    "lie": lambda: lie(math.nan),
    "boast": lambda: lie(1e300),
    "shut": shut,
    "slow": lambda: time.sleep(0.4) or 0.7,
    "exit": lambda: sys.exit(3),
    "interrupt": interrupt,
    "boom": boom,
    "unspeakable": unspeakable,
    "nan": lambda: float("nan"),
    "inf": lambda: float("-inf"),
    "string": lambda: "0.5",
    "object": object,
    "long": lambda: [0.1, 0.2],
    "huge": lambda: 10**400,
    "nothing": lambda: None,
    "true": lambda: True,
    "words": lambda: Verdict(0.25, "because\nof this", 0.1),
}


async def slowly(judged: Judged):
    """Sync or async."""
    await asyncio.sleep(0.001)
    return float(judged.tags[0])


def per_call(judged: Judged):
    """A value per answer, and for the first nothing."""
    return [None, *(float(n) for n in range(1, judged.answers))]


def variables(_: Judged):
    """What it sees."""
    return Verdict(1.0, " ".join(sorted(os.environ)))


def trl_length(prompts, completions, **columns):
    """As TRL's documentation writes one, for conversations."""
    return [len(one[-1]["content"]) + (answer or 0) for one, answer in zip(completions, columns["answer"], strict=True)]


def trl_text(completions, prompts, answer):
    """For strings; names the column that it wants."""
    return [float(text == wanted) for text, wanted in zip(completions, answer, strict=True)]


def trl_ids(prompts, completions, completion_ids, trainer_state=None, **columns):
    """Needs what only a trainer has."""
    return [float(len(ids)) for ids in completion_ids]


def trl_may(prompts, completions, completion_ids=None, *, trainer_state=None):
    """Can do without."""
    return [float(completion_ids is None)] * len(completions)


def verl_score(data_source, solution_str, ground_truth, extra_info=None):
    """As verl's custom_reward_function."""
    return {"score": float(solution_str == ground_truth), "acc": data_source, "index": extra_info["index"]}


def two_arguments(a, b):
    """No rule."""


no_function = 3
