"""The travel of versions: `python -m bench.weights`."""
