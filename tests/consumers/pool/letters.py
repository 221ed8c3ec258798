"""Dead letters on a real log, for whoever lists and redrives them."""

import pytest

from claw_r1.consumers.pool.dead_letters import Letter, letters
from claw_r1.eventlog.dead_letters import dead_letter
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, REWARDS, Topic
from tests import facts
from tests.consumers import published


def read(settings: LogSettings, topic: Topic) -> list[Record]:
    with LogReader(settings, [topic]) as reader:
        return list(reader.read_to_end())


@pytest.fixture
def dead(log_settings: LogSettings) -> list[Letter]:
    """One letter of a fact that its reader refused, one of a fact that a fold raised on, each from its place."""
    published.publish(log_settings, [published.outgoing(facts.reward("g", "t", 1.0)), published.outgoing(facts.call())])
    (reward,), (call,) = read(log_settings, REWARDS), read(log_settings, CALLS)
    published.publish(
        log_settings,
        [
            dead_letter(call, "wrong_type", "a fact of another topic", reader="streams"),
            dead_letter(reward, "fold_bug", "ZeroDivisionError", reader="streams"),
        ],
    )
    return letters(log_settings)
