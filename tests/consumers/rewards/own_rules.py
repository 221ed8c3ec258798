"""Rules of the tests of the engine. Each leaves a line for every time that it is asked, in the file that RULE_LOG names."""

import os
import random
import time


def note(judged):
    """A line per question: appended at once, so that killed processes lose none."""
    with open(os.environ["RULE_LOG"], "ab", buffering=0) as file:
        ids = [call.call_id for call in judged.calls] if judged.scope in ("call", "next") else []
        file.write(("/".join([judged.scope, judged.group_id, judged.trajectory_id, *ids]) + "\n").encode())


def moody(judged):
    """Never says the same twice."""
    note(judged)
    time.sleep(random.uniform(0.0, 0.02))
    return random.random()


def length(judged):
    """A function of the content alone."""
    note(judged)
    return float(len(judged.calls[0].reply["content"]))


def steps(judged):
    note(judged)
    return [float(at) for at, _ in enumerate(judged.calls)]


def members(judged):
    note(judged)
    return [float(len(member.calls)) for member in judged.members]


def after(judged):
    """1 where something came after the call."""
    note(judged)
    return 0.0 if judged.calls[0].after is None else 1.0


def waits(judged):
    """50 ms of somebody else's time."""
    note(judged)
    time.sleep(0.05)
    return 0.5


def silent(judged):
    note(judged)
