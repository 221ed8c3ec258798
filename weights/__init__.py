"""Transport of weights: what a version consists of, and how its bytes get from a trainer into the memory of a worker's host.

Weights are pulled. A trainer stages a version and sends it to whoever asks; a host keeps one verified copy of it, from
which the engines of its workers load. Imports torch only where tensors are touched: a supervisor never does.
"""
