"""The costs of scorers: `python -m bench.rewards`."""
