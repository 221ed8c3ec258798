"""The costs of the trainer, and what it learns: `python -m bench.trainer`."""
