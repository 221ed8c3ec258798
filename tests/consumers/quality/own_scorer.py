"""A scorer that somebody brings along."""

from claw_r1.consumers.quality.sample import Sample
from claw_r1.consumers.quality.scorers import Scorer


def quarter(sample: Sample) -> float:
    return 0.25


MINE = Scorer("mine", 3, quarter)
