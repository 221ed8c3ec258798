"""The costs of the pool: `python -m bench.datapool`."""
