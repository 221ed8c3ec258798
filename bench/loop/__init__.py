"""The costs of the loop: `python -m bench.loop`."""
