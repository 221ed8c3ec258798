"""Transport of weights: what a version consists of, and how its bytes get from a trainer to one worker.

Weights are pulled. A trainer stages a version and serves it; each transfer is a fresh group of two ranks with a
deadline, so that a trainer knows no members and a dead receiver costs nobody but its own sender thread.
"""
