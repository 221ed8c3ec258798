"""The engine on a tiny model, and batches for it."""

import random

from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.learn.objective import Objective
from tests.trainer.examples import example
from tests.trainer.tiny import VOCABULARY

LOSS = bound("ppo_clip", clip_low=0.2, clip_high=0.28)
SETTINGS = EngineSettings(learning_rate=1e-2, micro_batch_tokens_max=10_000)
OBJECTIVE = Objective(loss=LOSS)
HOW = {"objective": OBJECTIVE, "version": 0, "seed": 1}


def engine(model_dir, settings=SETTINGS):
    return TrainingEngine(model_dir, settings)


def batch(seed, temperature=1.0, logprob=-3.4):
    """Eight random trajectories of unequal length, scaled by their number of trained tokens."""
    dice = random.Random(seed)
    examples = []
    for index in range(8):
        prompt = [dice.randrange(VOCABULARY) for _ in range(dice.randint(2, 6))]
        response = [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 9))]
        advantage = dice.choice([-1.0, 0.0, 1.0])
        examples.append(
            example(prompt, response, logprob=logprob, temperature=temperature, advantage=advantage, index=index)
        )
    return OBJECTIVE.scaled(examples, 8)


def loss_of(step):
    """Of the batch: the mean over its tokens."""
    return step.totals.means()["loss"]


def train(model_dir, settings, steps=5):
    subject = engine(model_dir, settings)
    seen = [subject.train(batch(step), **HOW) for step in range(steps)]
    weights = {name: tensor.clone() for name, tensor in subject.named_tensors()}
    return [(loss_of(step), step.grad_norm) for step in seen], weights
