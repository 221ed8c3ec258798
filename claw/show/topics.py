"""`claw topics create|describe|diff`: the catalogue against the broker."""

from collections.abc import Mapping

import orjson

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.show.log import log_for_reading
from claw_r1.claw.show.notice import notice
from claw_r1.eventlog.kafka.admin import create_topics, describe_topics, diff_topics
from claw_r1.eventlog.settings import LogSettings


def run_topics(action: str, *, prefix: str, shape: Mapping[str, int], as_json: bool) -> int:
    """Carries out one action; exit code 1 when `diff` finds a difference. `shape`: fields of LogSettings.

    Raises CannotRun for an unknown action.
    """
    actions = {"create": create, "describe": describe, "diff": diff}
    if action not in actions:
        raise CannotRun(f"claw topics {action}: the actions are {', '.join(actions)}")
    with log_for_reading(prefix) as settings:
        return actions[action](settings.model_copy(update=dict(shape)), as_json)


def create(settings: LogSettings, as_json: bool) -> int:
    created = create_topics(settings)
    print(orjson.dumps({"created": created}).decode() if as_json else "\n".join(created) or "every topic exists")
    return 0


def describe(settings: LogSettings, as_json: bool) -> int:
    states = describe_topics(settings)
    if not states:
        notice(
            f"the broker has no topic with the prefix {settings.prefix}: name another --prefix, or `claw topics create`"
        )
    if as_json:
        print(orjson.dumps(states, option=orjson.OPT_NON_STR_KEYS).decode())
        return 0
    catalogue = settings.catalogue()
    print(f"{'topic':<32} {'key':<36} {'policy':<8} {'partitions':>10} {'replicas':>8} {'records':>9}")
    for state in states:
        topic = catalogue.topic(state.name)
        print(
            f"{state.name:<32} {topic.key:<36} {topic.policy:<8} {state.partitions:>10} {state.replication:>8} {state.records:>9}"
        )
    return 0


def diff(settings: LogSettings, as_json: bool) -> int:
    differences = diff_topics(settings)
    print(
        orjson.dumps({"differences": differences}).decode()
        if as_json
        else "\n".join(differences) or "the broker has what the catalogue asks for"
    )
    return 1 if differences else 0
