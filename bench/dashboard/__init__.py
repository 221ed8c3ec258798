"""The waiting of a person at a browser: `python -m bench.dashboard`."""
