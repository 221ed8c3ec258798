"""Whoever dies or stands still while a version is carried, at each phase of it: the trainer's loop goes on, each worker has the version by
another source, and the next one is carried again. Processes for trainer, supervisors and carriers; engines are played, but for those of
test_tensor_parallel.py. One fleet for all tests here, unless one of them broke it."""

import resource
import signal
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import psutil
import pytest

from claw_r1.weights.host_copies import MEMORY
from tests import children
from tests.patience import FACTOR, until
from tests.rollout import holds
from tests.rollout.carried_fleet import SLOW_S, CarriedFleet, signalled
from tests.rollout.carrying_trainer import BUCKET, TENSORS
from tests.soak import in_soak, only_in_soak

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

VICTIMS = ("its carrier", "trainer", "carrier", "supervisor", "engine")
"""The trainer's carrier and the trainer; the carrier, the supervisor and the engine of one worker."""
FAULTS = (signal.SIGKILL, signal.SIGSTOP)
HERE = [("supervisor", "middle", signal.SIGKILL), ("engine", "first", signal.SIGSTOP)]
"""Those of `make test`."""
MATRIX = [case for case in product(VICTIMS, holds.PHASES, FAULTS) if case not in HERE]
BEATS = 10
BLOCKED_S = 5.0 * FACTOR
"""Less than whatever waits for a group allows it."""
CARRIED = {"a": "gloo", "b": "gloo"}


@pytest.fixture(scope="module")
def kept() -> Iterator[list[CarriedFleet]]:
    """The fleet, once there is one."""
    fleets: list[CarriedFleet] = []
    yield fleets
    for fleet in fleets:
        fleet.close()


@pytest.fixture
def fleet(kept: list[CarriedFleet]) -> CarriedFleet:
    """A fleet that has a group and a version."""
    if kept and not kept[0].is_sound:
        kept.pop().close()
    if not kept:
        folder = Path(tempfile.mkdtemp(dir=MEMORY, prefix="carried-"))
        kept.append(CarriedFleet(folder))
        kept[0].is_sound = False
        assert kept[0].next_version() == CARRIED
        kept[0].check()
    (fleet,) = kept
    fleet.is_sound = False
    return fleet


@pytest.mark.parametrize(("victim", "phase", "number"), [*HERE, *(in_soak(*case) for case in MATRIX)])
def test_each_worker_has_its_version_and_the_next_is_carried_again(
    fleet: CarriedFleet, victim: str, phase: str, number: int
) -> None:
    """A fault of one, in the middle of a version."""
    if phase in holds.STARTING:  # which only a new group meets
        fleet.end_group()
    who = "trainer" if victim in ("its carrier", "trainer") and phase != "named" else "a"
    with holds.held(fleet.holds, who, phase) as met:
        fleet.want(fleet.wanted + 1)
        held = holds.pid_of(met)
        process = (
            psutil.Process(held) if victim.endswith("carrier") and phase != "named" else fleet.process(victim, "a")
        )
        below = process.children(recursive=True)
        signalled(process, number)
        if victim != "trainer":
            beats = fleet.beats()
            until(lambda: fleet.beats() > beats + BEATS, "the trainer's loop goes on", patience_s=BLOCKED_S)
    others = [name for name in fleet.workers if (name, victim) != ("a", "supervisor")]
    fleet.arrived(*others)
    if number == signal.SIGSTOP:
        if process.is_running():
            process.resume()
    else:
        fleet.restart(victim, "a", below)
    fleet.arrived(*fleet.workers)
    assert fleet.next_version() == CARRIED
    fleet.check()
    fleet.is_sound = True


@only_in_soak
def test_fifty_versions_at_ten_per_second_end_with_the_last_one(fleet: CarriedFleet) -> None:
    """Workers take what is newest whenever they are free; whatever groups that makes and ends, nothing is left of it."""
    fleet.want(fleet.wanted + 50, each_s=0.1)
    fleet.arrived(*fleet.workers)
    fleet.next_version()  # those who parted company over the last ones meet again
    assert fleet.next_version() == CARRIED
    fleet.check()
    fleet.is_sound = True


@only_in_soak
def test_a_host_whose_memory_is_full_costs_the_others_nothing(fleet: CarriedFleet) -> None:
    """It says so and serves what it has; with room again it has the newest version, and the next one is carried to both."""
    supervisor = fleet.process("supervisor", "a")
    supervisor.rlimit(resource.RLIMIT_FSIZE, (TENSORS * BUCKET - 1, -1))
    fleet.next_version()  # for which there was room before
    fleet.want(fleet.wanted + 1)
    assert fleet.arrived("b") == {"b": "gloo"}
    until(lambda: "no memory for a copy" in (fleet.report("a")["detail"] or ""), "the reason in a report")
    assert fleet.report("a")["version"] == fleet.wanted - 1
    supervisor.rlimit(resource.RLIMIT_FSIZE, (-1, -1))
    fleet.arrived("a")
    assert fleet.next_version() == CARRIED
    fleet.check()
    fleet.is_sound = True


@only_in_soak
def test_one_who_joins_in_the_middle_and_one_who_leaves_there(fleet: CarriedFleet) -> None:
    """Who joins is carried to by itself, and with the others from then on; who leaves costs them that version by this way."""
    with holds.held(fleet.holds, "a", "middle") as met:
        fleet.want(fleet.wanted + 1)
        holds.pid_of(met)
        fleet.workers["c"] = fleet.start_worker("c")
        until(lambda: fleet.carriers("c"), "it has asked", patience_s=SLOW_S)
    assert fleet.arrived(*fleet.workers) == CARRIED | {"c": "gloo"}
    assert fleet.next_version() == CARRIED | {"c": "gloo"}
    fleet.check()
    with holds.held(fleet.holds, "a", "middle") as met:
        fleet.want(fleet.wanted + 1)
        holds.pid_of(met)
        children.end(fleet.workers.pop("c"))
    fleet.arrived(*fleet.workers)
    assert fleet.next_version() == CARRIED
    fleet.check()
    fleet.is_sound = True
