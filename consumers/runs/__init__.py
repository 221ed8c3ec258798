"""The results of training runs, as the log has them: their settings, curves, versions, evaluations, and two of them
compared.

Input: claw.training.batches (key run_id) and, for one run, claw.weights (key model_id), from the beginning. Order: that of
a run's own events, which lie in one partition. Output: none. A replay gives the same answer. Plans are passed over unread,
so memory is one row of metrics per batch.
"""
