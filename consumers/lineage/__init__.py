"""The data that a weights version was trained on, and the versions that were trained on a call: the plans read both
ways.

Input: claw.training.batches and claw.weights from the beginning, facts by position; for an id that no plan names, the keys
of the pool's steps. Output: none. A replay gives the same answer; a plan is never changed. Memory:
one small entry per batch and version, and the plans that are asked for.
"""
