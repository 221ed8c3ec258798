"""A run as people see it: 16 batches of sums that agents explain, with its words, tokens, scores and metrics; for pictures."""

import json
import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from msgspec.structs import replace
from tokenizers import Tokenizer

from claw_r1.datapool.batch.plan import assemble
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.view import TOPICS
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import BatchTrained, CallCaptured, Event, Timings, VersionSpan
from tests import facts
from tests.consumers.dashboard.overview_scene import WholeStage, worker
from tests.consumers.dashboard.stage import body
from tests.consumers.dashboard.token_scenes import sampled, write_tokenizer
from tests.consumers.runs import observed

RUN, BATCHES, MEMBERS, GROUPS = "sums-7", 16, 4, 4
SECOND_US, MINUTE_US = 1_000_000, 60_000_000
SPEC = BatchSpec(group_size=MEMBERS, groups_per_batch=GROUPS, staleness_max=2)
ASKED = "A shepherd has {a} sheep, buys {b}, and sells {c}. How many are left? Explain, then say the number alone."
SAID = "She begins with {a} and buys {b}, so she has {d}.\n\nThen she sells {c}: {d} - {c} = **{e}**."
CORPUS = (ASKED, SAID, "How sure are you? Check each step.", "I checked: the sum is right.")


def picture_stage(folder: Path) -> WholeStage:
    """folder: for the tokenizer."""
    tokenizer, dice = write_tokenizer(folder, CORPUS), random.Random(7)
    began = now_us() - (3 * BATCHES + 1) * MINUTE_US
    stage = WholeStage()
    config = json.dumps(
        {"model_dir": str(folder), "spec": SPEC.model_dump(mode="json", exclude_defaults=True), "learning_rate": 3e-4}
    )
    stage.report(observed.at(observed.started(RUN, config), began / SECOND_US))
    stage.report(replace(observed.weights(0, run_id=RUN), sequence=None))
    taken: set[str] = set()
    for n in range(BATCHES + 1):
        at_us = began + 3 * n * MINUTE_US
        for number in range(GROUPS + 1):
            stage.tell(*group(tokenizer, dice, n, number, at_us))
        if n < BATCHES:
            taken |= train(stage, n, taken, at_us + 2 * MINUTE_US, dice)
    for name, state in (("worker-0", "ready"), ("worker-1", "ready"), ("worker-2", "starting")):
        stage.report(
            worker(
                name, now_us(), run_id=RUN, version=BATCHES - (name == "worker-1"), state=state, report_interval_s=600.0
            )
        )
    return stage


def group(tokenizer: Tokenizer, dice: random.Random, n: int, number: int, at_us: int) -> Iterator[Event]:
    """Four answers to one question; the later, the more of them are right. Some are never rewarded."""
    a, b, c = (dice.randint(3, 40) for _ in range(3))
    name, numbers = f"sheep-{n:02d}-{number}", {"a": a, "b": b, "c": c, "d": a + b, "e": a + b - c}
    marks = {"task": json.dumps({"question": ASKED.format(**numbers)}), "agent": "explainer", "tags": ("env:sums",)}
    yield facts.opened(name, envelope=envelope(at_us), expected_size=MEMBERS, **marks)
    for member in range(MEMBERS):
        yield facts.started(name, f"{name}.{member}", envelope=envelope(at_us), **marks)
        good = dice.random() < 0.2 + 0.75 * n / BATCHES
        reply = SAID.format(**numbers | ({} if good else {"e": numbers["e"] + dice.randint(1, 9)}))
        calls = list(
            calls_of(
                tokenizer,
                (name, f"{name}.{member}"),
                ASKED.format(**numbers),
                reply,
                n,
                at_us + member * SECOND_US,
                dice,
            )
        )
        yield from calls
        judged = number < GROUPS or n < BATCHES
        style = dice.choice([0.0, 0.25, 0.25, 0.5])
        yield facts.completed(
            name,
            f"{name}.{member}",
            calls=len(calls),
            reward=float(good) if judged else None,
            envelope=envelope(at_us + MINUTE_US),
        )
        if judged:
            yield facts.reward(
                name, f"{name}.{member}", style, source="judge", name="style", envelope=envelope(at_us + MINUTE_US)
            )


def calls_of(
    tokenizer: Tokenizer, ids: tuple[str, str], question: str, reply: str, n: int, at_us: int, dice: random.Random
) -> Iterator[CallCaptured]:
    """An answer, and a look back at it."""
    before, sent, spoken = None, at_us, list[dict[str, str]]()
    for turn, (asked, said) in enumerate(((question, reply), (CORPUS[2], CORPUS[3]))):
        queue, first, whole = (dice.randint(1, most) * SECOND_US // 10 for most in (9, 5, 60))
        times = Timings(
            received_us=sent,
            dispatched_us=sent + queue,
            first_token_us=sent + queue + first,
            done_us=sent + queue + first + whole,
        )
        spoken.append({"role": "user", "content": asked})
        one = sampled(
            tokenizer,
            f"{ids[1]}.{turn}",
            asked,
            said,
            before,
            timings=times,
            envelope=envelope(sent),
            request=body({"messages": spoken})[1],
        )
        spoken.append({"role": "assistant", "content": said})
        size = len(one.response_ids) // 4
        version = max(0, n - dice.randint(0, 1))
        spans = (VersionSpan(run_id=RUN, version=version, start=0, end=size),)
        before = replace(
            one,
            group_id=ids[0],
            trajectory_id=ids[1],
            spans=spans,
            agent="explainer",
            finish_reason=dice.choice(["stop"] * 9 + ["length"]),
        )
        yield before
        sent = times.done_us + dice.randint(5, 30) * SECOND_US // 10


def envelope(at_us: int) -> object:
    """Of the run."""
    return facts.envelope(at_us=at_us, run_id=RUN)


def train(stage: WholeStage, n: int, taken: set[str], at_us: int, dice: random.Random) -> set[str]:
    """The next batch of the run; the groups that it took."""
    rows = PoolRows()
    for record in stage.log.reader(TOPICS).read_to_end():
        rows.apply(record.topic.removeprefix("claw."), record.key, record.value)
    chosen = select(rows, SPEC, n, RUN, taken).chosen
    plan = assemble(chosen, SPEC, version=n, seed=7, envelope=envelope(at_us), run_id=RUN, sequence=n)
    returns = sorted(each.reward for each in plan.trajectories)
    figures = [each.figures for each in plan.trajectories if each.figures is not None]
    lengths = sorted(chain.from_iterable(each.response_lengths for each in figures))
    metrics = {
        "reward": sum(returns) / len(returns), "reward_p10": returns[len(returns) // 10], "reward_p90": returns[-1 - len(returns) // 10],
        "response_tokens_p50": float(lengths[len(lengths) // 2]), "response_tokens_p95": float(lengths[-1 - len(lengths) // 20]),
        "truncated_share": sum(each.truncated for each in figures) / len(lengths), "zero_variance_share": dice.random() / 3,
        "staleness_mean": dice.random(), "staleness_max": 1.0, "kl_k3": 0.001 * n * dice.random(), "max_logprob_gap": dice.random() / 20,
        "wait_s": 40 + 20 * dice.random(), "train_s": 30 + 5 * dice.random(), "trained_tokens": float(sum(lengths)),
        "entropy": 1.2 - 0.04 * n, "grad_norm": 0.5 + dice.random(), "clip_share": 0.02 * dice.random(), "ess": 0.9,
    }  # fmt: skip
    done = BatchTrained(
        envelope=envelope(at_us + MINUTE_US // 2), run_id=RUN, sequence=n, version=n + 1, metrics=metrics
    )
    stage.report(plan, done, replace(observed.weights(n + 1, run_id=RUN), sequence=n))
    return {each.record.group_id for each in chosen}
