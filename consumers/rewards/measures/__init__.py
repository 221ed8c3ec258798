"""What verdicts add up to: totals, agreement."""
