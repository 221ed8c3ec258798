"""Whatever dies: no subject without verdict, none with two, and nobody is paid twice but for what was in flight."""

import os
import random
import signal
import time

import pytest

from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import RewardAssigned
from tests.consumers.published import episode, say
from tests.consumers.rewards.fleet import RewardsFleet, fleet, until, write

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KILLS = int(os.environ.get("CLAW_REWARDS_KILLS", "3"))
TRAJECTORIES = int(os.environ.get("CLAW_REWARDS_TRAJECTORIES", "60"))
SLOT = {"rule/moody": {"use": "moody", "scope": "call", "pure": False}}
"""Not pure: these calls have equal words, and would be judged once."""
IN_FLIGHT = 100
"""Subjects of one poll, `records_max`: as many are asked about at once."""


def publish(settings: LogSettings, first: int, count: int) -> set[tuple[str, str, str]]:
    """Trajectories of two calls, each in a group of its own. Their calls."""
    events = [event for n in range(first, first + count) for event in episode(f"g{n}", f"g{n}", None)]
    say(settings, *events)
    return {(f"g{n}", f"g{n}", f"g{n}-{at}") for n in range(first, first + count) for at in (0, 1)}


def check(scorers: RewardsFleet, calls: set[tuple[str, str, str]], paid_twice_max: int) -> None:
    """Every call has one event with one value, and that is the value of its only verdict."""
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
    print(f"verdicts_twice=0 paid_twice={twice} in_flight_max={paid_twice_max} subjects={len(calls)}")
    assert twice <= paid_twice_max


def test_a_scorer_that_is_killed_again_and_again_judges_each_call_once(log_settings, tmp_path):
    """kill -9 under load: what was kept is never asked again, and nothing is left out."""
    calls: set[tuple[str, str, str]] = set()
    with fleet(log_settings, tmp_path, SLOT) as scorers:
        for number in range(KILLS):
            calls |= publish(log_settings, number * TRAJECTORIES, TRAJECTORIES)
            before = sum(scorers.questions().values())
            process = scorers.start()
            until(lambda before=before: sum(scorers.questions().values()) > before + random.randint(1, TRAJECTORIES))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        scorers.start()
        until(lambda: {slot[:3] for slot in scorers.values()} == calls)
        time.sleep(1.0)
        check(scorers, calls, KILLS * IN_FLIGHT)


def test_a_fleet_grows_and_shrinks_under_load(log_settings, tmp_path):
    """1 -> 4 -> 2 processes while calls come: partitions change hands, verdicts do not."""
    calls: set[tuple[str, str, str]] = set()
    with fleet(log_settings, tmp_path, SLOT) as scorers:
        scorers.start()
        for number in range(6):
            calls |= publish(log_settings, number * TRAJECTORIES, TRAJECTORIES)
            if number == 1:
                for _ in range(3):
                    scorers.start()
            if number == 3:
                for process in scorers.processes[:2]:
                    process.terminate()
            time.sleep(2.0)
        until(lambda: {slot[:3] for slot in scorers.values()} == calls)
        time.sleep(1.0)
        check(scorers, calls, 4 * IN_FLIGHT)
        assert {process.wait(30) for process in scorers.processes[:2]} <= {
            0,
            -signal.SIGTERM,
        }  # it may not have begun yet


def test_an_owner_that_slept_through_its_succession_writes_nothing_more(log_settings, tmp_path):
    """SIGSTOP past the session timeout in the middle of judging: the successor judges on, the sleeper is fenced and joins again."""
    with fleet(log_settings, tmp_path, SLOT) as scorers:
        sleeper = scorers.start(CLAW_REWARDS_WORK_TIMEOUT_S="6")
        calls = publish(log_settings, 0, TRAJECTORIES)
        until(lambda: sum(scorers.questions().values()) > 5)
        os.kill(sleeper.pid, signal.SIGSTOP)
        scorers.start(CLAW_REWARDS_WORK_TIMEOUT_S="6")
        calls |= publish(log_settings, TRAJECTORIES, TRAJECTORIES)
        until(lambda: {slot[:3] for slot in scorers.values()} == calls)
        os.kill(sleeper.pid, signal.SIGCONT)
        calls |= publish(log_settings, 2 * TRAJECTORIES, TRAJECTORIES)
        until(lambda: {slot[:3] for slot in scorers.values()} == calls)
        time.sleep(3.0)
        check(scorers, calls, 2 * IN_FLIGHT)
        assert sleeper.poll() is None, "it joined again"


def test_a_broker_that_is_restarted_costs_time_and_nothing_else(local_broker, tmp_path):
    """Killed and started again while verdicts are being made."""
    from claw_r1.eventlog.kafka.admin import create_topics

    settings = LogSettings(bootstrap_servers=local_broker.bootstrap, prefix="restarted", partitions=2)
    create_topics(settings)
    with fleet(settings, tmp_path, SLOT) as scorers:
        process = scorers.start()
        calls = publish(settings, 0, TRAJECTORIES)
        until(lambda: sum(scorers.questions().values()) > 5)
        local_broker.stop()
        time.sleep(2.0)
        local_broker.start()
        calls |= publish(settings, TRAJECTORIES, TRAJECTORIES)
        until(lambda: {slot[:3] for slot in scorers.values()} == calls, timeout_s=150)
        time.sleep(1.0)
        check(scorers, calls, 2 * IN_FLIGHT)
        assert process.poll() is None


def test_rows_are_judged_once_however_often_their_scorer_dies(log_settings, tmp_path):
    """Scopes that read the pool: killed once in the middle, every trajectory has one word."""
    history = [event for n in range(30) for event in episode(f"t{n}", f"t{n}", None)]
    write(log_settings, history)
    with fleet(
        log_settings, tmp_path, {"rule/whole": {"use": "moody", "scope": "trajectory", "pure": False}}
    ) as scorers:
        process = scorers.start()
        until(lambda: sum(scorers.questions().values()) > 5)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        scorers.start()
        until(lambda: len(scorers.values()) == 30)
        time.sleep(1.0)
        assert all(len(each) == 1 for each in scorers.values().values())
