"""DeepSpeed training on batches from the log: plan, train, keep, publish.

Invariant: a batch is trained exactly once per run, from facts that its plan names; a version number never names two
different sets of bytes. Where to look: `run.py` for the order, `plan/` for the next batch, `journal/` for the run's events
and its history, `update.py` for one batch, `learn/learner.py` for its computation, `learn/engine.py` for DeepSpeed,
`learn/objective.py` and `learn/metrics.py` for loss and metrics, `versions/` for the weights, `resume.py` for recovery.
"""
