"""Verifies the log's promises: the pool follows from the facts, no call is lost, nothing is trained twice.

Input: claw.calls, claw.rewards, the pool and its positions, claw.training.batches, claw.weights, read_committed, by
position. Output: a report; nothing is written. Delivery and order do not matter: everything is read. The folds are
not trusted: `oracle/` computes the pool a second way.
"""
