"""One batch of a run: its frozen plan, its composition, and the pool as it was then."""
