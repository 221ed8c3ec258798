"""A scorer that somebody brings along."""

from consumers.quality.sample import Sample
from consumers.quality.scorers import Scorer


def quarter(sample: Sample) -> float:
    return 0.25


MINE = Scorer("mine", 3, quarter)
