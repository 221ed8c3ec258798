"""The learning of environments: `python -m bench.environments`."""
