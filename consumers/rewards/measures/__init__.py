"""The figures that verdicts add up to: totals, agreement."""
