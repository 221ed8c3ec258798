"""Settings arrive where they act."""

from claw_r1.trainer.algorithms.corrections import CorrectionBounds
from claw_r1.trainer.compose import engine_settings, objective_of, pace_of
from claw_r1.trainer.learn.learner import Pace
from tests.trainer.incarnation import settings

CORRECTED = {"correction": "icepop", "icepop_low": 0.4, "icepop_high": 4.0, "stale_negatives": 0.3}


def test_sections_reach_objective_and_pace(tmp_path):
    """Masks with one bound, and a decay that is counted in batches."""
    chosen = settings(
        tmp_path / "out",
        tmp_path,
        loss="gspo",
        objective={"minibatches": 2, "epochs": 3, "mask_above": 2.0, "entropy_bonus": 0.1} | CORRECTED,
        optimizer={"schedule": "cosine", "warmup_steps": 5, "decay_batches": 10, "floor": 0.1, "beta2": 0.95},
    )
    objective = objective_of(chosen)
    assert (objective.norm, objective.correction) == ("sequence_mean", "icepop")
    assert objective.bounds == CorrectionBounds(low=0.4, high=4.0, mask=(0.0, 2.0), negatives=0.3)
    assert objective.entropy_bonus == 0.1
    assert pace_of(chosen) == Pace(mini_batches=2, epochs=3, schedule="cosine", warmup_steps=5, steps_max=60, floor=0.1)
    assert engine_settings(chosen).optimizer.beta2 == 0.95
