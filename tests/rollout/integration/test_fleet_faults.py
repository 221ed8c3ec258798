"""Laws of a fleet under fire: two real workers, a trainer that publishes all the time, clients that retry.

One fleet for all tests here, in order, in `make soak` alone; `make soak N=50` adds so many random schedules. `make test` kills a
worker in tests/e2e/test_survival.py, and holds the exactness of tokens across updates in test_real_worker.py.
"""

import random
import resource
import time
from collections.abc import Iterator
from itertools import product

import pytest
import torch

from tests.patience import until
from tests.rollout.fleet import Fleet
from tests.rollout.tiny_model import make_tiny_model
from tests.soak import ONLY_IN_SOAK, SOAK

SEEDED = 4
"""Seeds whose fault is not drawn but the next of FAULTS, so that they meet each process and both faults."""
DEADLINE_S = 90.0
"""For a call, whatever happens to one worker: generous, for the machine is shared; the other worker answers in seconds."""
PAUSES_S = 0.08
"""About what a sync of the tiny model takes: a fault that comes so long after its beginning meets any of its phases."""
STOPPED_S = (0.1, 6.0)
"""Around what the fleet takes for dead (3 s without an answer of an engine, 2 s without a byte written)."""
SAMPLE = 6
FAULTS = [*product(("engine", "supervisor", "trainer", "server"), ("kill", "stop"))]

pytestmark = [pytest.mark.vllm, pytest.mark.slow, *ONLY_IN_SOAK]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Both workers serve the newest version, and four clients call."""
    torch.set_num_threads(1)
    model = tmp_path_factory.mktemp("model")
    make_tiny_model(model)
    fleet = Fleet(model, tmp_path_factory.mktemp("fleet"), DEADLINE_S)
    try:
        yield fleet
    finally:
        fleet.close()


def test_a_worker_without_memory_for_the_copy_says_so_and_serves_on(fleet: Fleet) -> None:
    """It keeps the version that it has and answers; it follows again as soon as there is memory."""
    supervisor, other, worker = fleet.victim("supervisor", 0), fleet.victim("supervisor", 1), fleet.workers[0]
    before, replies = fleet.converge(), len(fleet.calls.replies)
    supervisor.rlimit(resource.RLIMIT_FSIZE, (sum(p.nbytes for p in fleet.base.parameters()) // 2, -1))
    other.suspend()  # or its copy, which is the host's, would do
    try:
        reason = "no memory for a copy"  # told once the room that was made before is gone, too
        until(lambda: reason in ((worker.last_report() or {}).get("detail") or ""), "the reason in a report")
        until(lambda: len(fleet.calls.replies) > replies + 5, "replies meanwhile")
        report = worker.last_report()
        assert report is not None
        assert report["state"] == "ready"
        assert report["version"] >= before
    finally:
        supervisor.rlimit(resource.RLIMIT_FSIZE, (-1, -1))
        other.resume()
    assert fleet.converge() > before


@pytest.mark.parametrize("seed", range(SEEDED + SOAK))
def test_any_process_may_die_or_stand_still_at_any_phase(fleet: Fleet, seed: int) -> None:
    """The fleet comes to the last version, no call is lost or waits beyond its deadline, and no token is mislabelled."""
    dice = random.Random(seed)
    first = len(fleet.calls.replies)
    for turn in range(1 if seed < SEEDED else dice.randint(1, 2)):
        kind, how = FAULTS[seed * 5 % len(FAULTS)] if not turn and seed < SEEDED else dice.choice(FAULTS)
        number, moment = dice.randrange(2), dice.choice(("fetch", "load"))
        delay_s, stopped_s = dice.uniform(0, PAUSES_S), dice.uniform(*STOPPED_S)
        print(f"seed {seed}: {how} {kind} {number}, {delay_s * 1000:.0f} ms into {moment}, {stopped_s:.1f} s")
        fleet.wait_for_sync(number, moment)
        time.sleep(delay_s)
        if how == "kill":
            fleet.kill(kind, number)
        else:
            fleet.stop(kind, number, stopped_s)
    fleet.converge()
    assert not fleet.calls.lost
    replies = fleet.calls.replies[first:]
    assert replies, "nobody called: the fault met nothing"
    mixed = [reply for reply in replies if len(reply.spans) > 1]
    fleet.check(dice.sample(mixed, min(SAMPLE, len(mixed))) + dice.sample(replies, min(SAMPLE, len(replies))))


def test_every_call_that_began_was_answered_once(fleet: Fleet) -> None:
    """Answered, lost and still running are all that began; calls really crossed versions."""
    calls = fleet.calls
    fleet.close()
    assert not calls.lost
    assert calls.began == len(calls.replies)
    assert max(reply.seconds for reply in calls.replies) <= DEADLINE_S
    assert any(len(reply.spans) > 1 for reply in calls.replies)
