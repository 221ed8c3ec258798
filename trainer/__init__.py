"""DeepSpeed training on batches that the log describes: plan, train, keep, publish.

Invariant: a batch is trained exactly once per run, from facts that its plan names; a version number never names two
different sets of bytes. Where to look: `run.py` for the order, `resume.py` for what happens after a crash, `update.py`
for one batch, `learn/learner.py` for what computes it, `learn/engine.py` for DeepSpeed, `learn/objective.py` and
`learn/metrics.py` for what is computed.
"""
