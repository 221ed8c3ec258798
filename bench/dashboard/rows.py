"""The rows of a large pool, as the streams would write them: groups of 8 trajectories of 3 calls, without tokens."""

import json
import random
from collections.abc import Iterator

from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Curation, GroupMember, GroupRecord, RewardSlot, StepRecord, Timings, TrajectoryRecord
from claw_r1.schemas.keys import group_key, step_key, trajectory_key
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES

MEMBERS, CALLS = 8, 3
TASKS, AGENTS, VERSIONS = 500, 5, 60
BEGAN_US = 1_790_000_000_000_000
Written = tuple[str, bytes, bytes]


def group_rows(number: int) -> Iterator[Written]:
    """(topic, key, value) of the rows of one group, with words and numbers as pools have them."""
    dice, group_id = random.Random(number), f"g-{number:08d}"
    tags = tuple(dice.sample(["maths", "hard", "code", "web"], dice.randint(0, 2))) + ("rare",) * (number % 500 == 0)
    shared = {"group_id": group_id, "channel": dice.choice(["train"] * 9 + ["val"]), "run_id": f"run-{number % 3}"}
    task = json.dumps(
        {"question": f"task {number % TASKS}: how many sheep are there in the field?", "seed": number % TASKS}
    )
    agent, version = f"agent-{number % AGENTS}", dice.randrange(VERSIONS)
    versions = {"min_version": version, "max_version": version + dice.randint(0, 2)}
    members = []
    for member in range(MEMBERS):
        place = {**shared, "trajectory_id": f"t-{number:08d}-{member}", "agent": agent, "task": task, **versions}
        at_us, value = (
            BEGAN_US + number * 1_000_000 + dice.randrange(10**9),
            dice.choice([0.0, 0.25, 1.0, dice.random()]),
        )
        calls = [f"c-{number:08d}-{member}-{call}" for call in range(CALLS)]
        for call_id in calls:
            yield (
                STEPS.name,
                step_key(group_id, place["trajectory_id"], call_id),
                encode(_step(dice, place, call_id, at_us)),
            )
        names = (("agent", "outcome"), ("judge", "style"), ("rule", "format"))
        slots = tuple(RewardSlot(source=s, name=n, value=dice.random(), revision=0, event_id="e") for s, n in names)
        record = TrajectoryRecord(
            **place, status="completed", status_us=at_us + 9_000_000, registered_us=at_us, last_progress_us=at_us,
            calls=tuple(calls), offsets=tuple(range(CALLS)), rewards=slots[: 1 + number % 3], return_total=value,
            trainable_calls=CALLS, ready=number % 7 != 0, reasons=() if number % 7 else ("rewards_missing",), digest="0" * 64,
        )  # fmt: skip
        yield TRAJECTORIES.name, trajectory_key(group_id, place["trajectory_id"]), encode(record)
        members.append(
            GroupMember(trajectory_id=place["trajectory_id"], status="completed", ready=True, digest="0" * 64)
        )
    yield GROUPS.name, group_key(group_id), encode(
        GroupRecord(
            **shared, **versions, declared=True, declared_us=BEGAN_US + number, expected_size=MEMBERS, task=task, tags=tags,
            agent=agent, members=tuple(members), ready=number % 7 != 0, reward_mean=dice.random(), reward_std=dice.random(),
            last_progress_us=BEGAN_US + number, digest="0" * 64,
        )
    )  # fmt: skip


def _step(dice: random.Random, place: dict[str, object], call_id: str, at_us: int) -> StepRecord:
    judged = dice.random() < 0.1
    note = f"an odd note {dice.randrange(100)}" if judged else None
    curation = Curation(quality=dice.random(), note=note, tags=("seen",), who="b", scores={"entropy@1": dice.random()})
    return StepRecord(
        **place, call_id=call_id, first_received_us=at_us + dice.randrange(10**6), prompt_length=dice.randrange(4000),
        response_length=dice.randrange(900), status="completed", finish_reason="stop", trainable=True, digest="0" * 64,
        reward_total=dice.choice([None, dice.random()]), curation=curation if judged else None, worker_id=f"w{dice.randrange(4)}",
        timings=Timings(received_us=at_us, dispatched_us=at_us, done_us=at_us + dice.randrange(10**7)),
    )  # fmt: skip
