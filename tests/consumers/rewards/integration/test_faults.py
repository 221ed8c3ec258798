"""Whatever dies: no subject without verdict, none with two, and nobody is paid twice but for what was in flight."""

import os
import random
import signal
from subprocess import Popen

import pytest

from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from tests.consumers.published import episode, say
from tests.consumers.rewards.fleet import RewardsFleet, fleet, write
from tests.patience import PATIENCE_S, until
from tests.soak import SOAK

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KILLS = SOAK or 1
TRAJECTORIES = 30
"""Published at a time."""
SLOT = {"rule/moody": {"use": "moody", "scope": "call", "pure": False}}
"""Not pure: these calls have equal words, and would be judged once."""
HANDED_OVER_MAX = 30
"""Subjects that an owner which lives may be asking about when it has to hand them over."""


def publish(settings: LogSettings, first: int, count: int) -> set[tuple[str, str, str]]:
    """Trajectories of two calls, each in a group of its own. Their calls."""
    events = [event for n in range(first, first + count) for event in episode(f"g{n}", f"g{n}", None)]
    say(settings, *events)
    return {(f"g{n}", f"g{n}", f"g{n}-{at}") for n in range(first, first + count) for at in (0, 1)}


def judged(scorers: RewardsFleet, calls: set[tuple[str, str, str]]) -> None:
    """Waits until every call has its value."""
    until(lambda: {slot[:3] for slot in scorers.values()} >= calls, "a value for each call", patience_s=3 * PATIENCE_S)


def question_count(scorers: RewardsFleet) -> int:
    return sum(scorers.questions().values())


def at_work(scorers: RewardsFleet, since: int, most: int = 5) -> None:
    """Waits until a few calls were asked about since that many were: counted before there was something to ask."""
    enough = since + random.randint(1, most)
    until(lambda: question_count(scorers) >= enough, "questions")


def kill(process: "Popen[bytes]") -> None:
    """With its rules' processes, so that no question comes after it."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check(scorers: RewardsFleet, calls: set[tuple[str, str, str]], in_flight: int) -> None:
    """Every call has one event with one value, that of its only verdict; paid twice is at most what was in flight.

    All scorers have ended by then, so that nothing comes after the look.
    """
    scorers.stop()
    values = scorers.values()
    assert {slot[:3] for slot in values} == calls
    assert {slot: each for slot, each in values.items() if len(each) != 1} == {}
    by_id: dict[str, set[float | None]] = {}
    for verdict in scorers.verdicts():
        by_id.setdefault(verdict.verdict_id, set()).add(verdict.values[0] if verdict.values else None)
    assert {name: each for name, each in by_id.items() if len(each) != 1} == {}
    for event in scorers.rewards():
        assert isinstance(event, RewardAssigned)
        assert event.verdict is not None
        assert by_id[event.verdict.verdict_id] == {event.value}
    twice = sum(scorers.questions().values()) - len(scorers.questions())
    print(f"verdicts_twice=0 paid_twice={twice} in_flight={in_flight} subjects={len(calls)}")
    assert twice <= in_flight


@pytest.mark.soak
@pytest.mark.timeout(120 + 60 * KILLS)
def test_a_scorer_that_is_killed_judges_each_call_once(log_settings, tmp_path):
    """kill -9 under load: what was kept is never asked again, and nothing is left out."""
    calls: set[tuple[str, str, str]] = set()
    in_flight = 0
    with fleet(log_settings, tmp_path, SLOT) as scorers:
        for number in range(KILLS):
            calls |= publish(log_settings, number * TRAJECTORIES, TRAJECTORIES)
            before = question_count(scorers)
            process = scorers.start()
            at_work(scorers, before, TRAJECTORIES)
            kill(process)
            in_flight += scorers.in_flight()
        scorers.start()
        judged(scorers, calls)
        check(scorers, calls, in_flight)


def test_a_fleet_grows_and_shrinks_under_load(log_settings, tmp_path):
    """1 -> 3 -> 1 processes while calls come: partitions change hands, verdicts do not, and who goes leaves nothing undone."""
    calls = publish(log_settings, 0, TRAJECTORIES)
    with fleet(log_settings, tmp_path, SLOT) as scorers:
        first = scorers.start()
        at_work(scorers, since=0)
        guests = [scorers.start(), scorers.start()]
        calls |= publish(log_settings, TRAJECTORIES, TRAJECTORIES)
        until(lambda: any('"partitions": 1' in scorers.log(guest) for guest in (1, 2)), "a share for a guest")
        before = question_count(scorers)
        calls |= publish(log_settings, 2 * TRAJECTORIES, TRAJECTORIES)
        at_work(scorers, before)
        for process in (first, guests[0]):
            process.terminate()
        calls |= publish(log_settings, 3 * TRAJECTORIES, TRAJECTORIES)
        judged(scorers, calls)
        assert {process.wait(30) for process in (first, guests[0])} <= {0, -signal.SIGTERM}  # it may not have begun yet
        check(scorers, calls, HANDED_OVER_MAX)


def test_an_owner_that_slept_through_its_succession_writes_nothing_more(log_settings, tmp_path):
    """SIGSTOP past the session timeout in the middle of judging: the successor judges on, the sleeper is fenced and joins again."""
    with fleet(log_settings, tmp_path, SLOT) as scorers:
        sleeper = scorers.start(CLAW_REWARDS_WORK_TIMEOUT_S="6")
        calls = publish(log_settings, 0, TRAJECTORIES)
        polled = len(calls)  # at most: once awake, it asks about the rest before it learns that it is fenced
        at_work(scorers, since=0)
        os.killpg(sleeper.pid, signal.SIGSTOP)  # with its rules' processes: nothing is asked while it sleeps
        scorers.start(CLAW_REWARDS_WORK_TIMEOUT_S="6")
        calls |= publish(log_settings, TRAJECTORIES, TRAJECTORIES)
        judged(scorers, calls)
        os.killpg(sleeper.pid, signal.SIGCONT)
        until(lambda: scorers.log().count("log_partitions_assigned") >= 2, "it joins again")
        calls |= publish(log_settings, 2 * TRAJECTORIES, TRAJECTORIES)
        judged(scorers, calls)
        assert sleeper.poll() is None
        check(scorers, calls, polled + HANDED_OVER_MAX)


def test_a_broker_that_is_restarted_costs_time_and_nothing_else(local_broker, local_log, tmp_path):
    """Stopped and started again while verdicts are being made."""
    with fleet(local_log, tmp_path, SLOT) as scorers:
        process = scorers.start()
        calls = publish(local_log, 0, TRAJECTORIES)
        at_work(scorers, since=0)
        local_broker.stop()
        local_broker.start()
        calls |= publish(local_log, TRAJECTORIES, TRAJECTORIES)
        judged(scorers, calls)
        assert process.poll() is None
        check(scorers, calls, HANDED_OVER_MAX)


def test_rows_are_judged_once_however_often_their_scorer_dies(log_settings, tmp_path):
    """Scopes that read the pool: killed once in the middle, every trajectory has one word."""
    write(log_settings, [event for n in range(20) for event in episode(f"t{n}", f"t{n}", None)])
    with fleet(log_settings, tmp_path, {"rule/whole": {**SLOT["rule/moody"], "scope": "trajectory"}}) as scorers:
        process = scorers.start()
        at_work(scorers, since=0)
        kill(process)
        in_flight = scorers.in_flight()
        scorers.start()
        until(lambda: len(scorers.values()) == 20, "a value for each row")
        scorers.stop()
        assert all(len(each) == 1 for each in scorers.values().values())
        assert sum(scorers.questions().values()) - len(scorers.questions()) <= in_flight
