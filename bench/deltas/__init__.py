"""The costs of a long conversation: `python -m bench.deltas`."""
