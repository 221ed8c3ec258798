"""The trainer in a closed loop with a sampler that uses the published weights: it learns, and its numbers are exact."""

import random
import threading

import pytest
import torch
from transformers import AutoModelForCausalLM

from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.schemas.arrays import pack_floats, pack_ids
from claw_r1.schemas.events import BatchTrained, Sampling, VersionSpan
from claw_r1.trainer.compose import learner_of
from claw_r1.trainer.dependencies import TrainerDependencies
from claw_r1.trainer.run import TrainingRun
from tests import facts
from tests.trainer.incarnation import RUN, settings
from tests.trainer.pooled import SETTINGS, ReadRows, apply_to
from tests.trainer.runs_in_memory import events, memory_journal
from tests.trainer.tiny import VOCABULARY, make_model

TEMPERATURE = 0.8
SPEC = BatchSpec(groups_per_batch=4, group_size=8, staleness_max=0)
BATCHES = 15
CALLS = 2
RIGHT = range(4)


class Sampler:
    """An agent and an engine in one: stages weights, and plays groups with them whenever the trainer has none left.

    The task: say one of four tokens out of 32, twice. Reward: share of right tokens, so chance is about 1/8.
    """

    url = "http://127.0.0.1:1/offer"

    def __init__(self, model_dir, log, pool):
        self.model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
        self.log, self.pool, self.version, self.played = log, pool, -1, 0
        self.dice = random.Random(0)

    def stage(self, run_id, version, snapshot):
        tensors = {
            tensor.name: torch.frombuffer(bytearray(content), dtype=torch.float32).view(tensor.shape)
            for tensor, content in snapshot.tensors()
        }
        self.model.load_state_dict(tensors, strict=False)
        self.version = version
        if version < BATCHES:
            history = [e for _ in range(SPEC.groups_per_batch) for e in self.group()]
            apply_to(self.pool, self.log, history)

    def settle(self, run_id, version):
        pass

    def group(self):
        name, prompt_token = f"g{self.played:04d}", self.dice.randrange(VOCABULARY)
        self.played += 1
        prompts, correct = [[prompt_token] for _ in range(SPEC.group_size)], [0] * SPEC.group_size
        yield facts.opened(name, envelope=self.envelope(), expected_size=SPEC.group_size)
        for number in range(CALLS):
            for index, (token, logprob) in enumerate(self.sample(prompts)):
                yield self.call(name, f"t{index}", number, prompts[index], token, logprob)
                correct[index] += token in RIGHT
                prompts[index] = [*prompts[index], token, self.dice.randrange(VOCABULARY)]
        for index in range(SPEC.group_size):
            reward = correct[index] / CALLS
            yield facts.completed(name, f"t{index}", envelope=self.envelope(), calls=CALLS, reward=reward)

    def call(self, group, trajectory, number, prompt, token, logprob):
        return facts.call(
            group,
            trajectory,
            f"c{number}",
            envelope=self.envelope(),
            prompt=facts.edge(prompt),
            response_ids=pack_ids([token]),
            response_logprobs=pack_floats([logprob]),
            spans=(VersionSpan(run_id=RUN, version=self.version, start=0, end=1),),
            sampling=Sampling(temperature=TEMPERATURE, top_p=1.0, top_k=0),
            received_us=number,
        )

    def sample(self, prompts):
        with torch.no_grad():
            logprobs = (self.model(torch.tensor(prompts)).logits[:, -1] / TEMPERATURE).log_softmax(-1)
        tokens = [self.dice.choices(range(VOCABULARY), row.exp().tolist())[0] for row in logprobs]
        return [(token, float(row[token])) for token, row in zip(tokens, logprobs, strict=True)]

    def envelope(self):
        return facts.envelope(at_us=self.played, run_id=RUN)


def play(tmp_path, learning_rate):
    """Metrics of each batch."""
    model_dir = make_model(tmp_path / "model")
    chosen = settings(tmp_path / "out", model_dir, learning_rate=learning_rate, batches_max=BATCHES, spec=SPEC)
    log = MemoryLog(SETTINGS)
    pool = ReadRows()
    sampler = Sampler(model_dir, log, pool)
    world = TrainerDependencies(
        learner=learner_of(chosen),
        pool=pool,
        facts=log.lookup(),
        journal=memory_journal(log),
        transfer_server=sampler,
        stop=threading.Event(),
        producer="trainer/test",
    )
    TrainingRun(chosen, world).run()
    return [event.metrics for event in events(log, BatchTrained)]


@pytest.mark.slow
def test_the_reward_climbs_and_every_logprob_agrees(tmp_path):
    """From chance to most answers right, on policy, with a gap of rounding only in every version."""
    curve = play(tmp_path, 5e-3)
    assert curve[0]["reward"] < 0.3
    assert sum(values["reward"] for values in curve[-5:]) / 5 > 0.8
    assert max(values["max_logprob_gap"] for values in curve) < 1e-4
    assert all(values["gap_tokens"] == values["trained_tokens"] == 64 for values in curve)
    assert all(values["staleness_max"] == 0 for values in curve)
    assert curve[-1]["entropy"] < curve[0]["entropy"]


@pytest.mark.slow
def test_the_control_does_not_climb(tmp_path):
    """Learning rate 0: as many versions, and no gain."""
    curve = play(tmp_path, 0.0)
    assert len(curve) == BATCHES
    assert sum(values["reward"] for values in curve[-5:]) / 5 < 0.3
    assert max(values["max_logprob_gap"] for values in curve) < 1e-4
