"""One batch of a run: its plan as it was frozen, what it was made of, and the pool as it was then."""
