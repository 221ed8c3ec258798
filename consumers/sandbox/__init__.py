"""Runs code that a model wrote, so that it costs itself and nobody else. Imports nothing of ours.

Invariant: what is believed of a run comes over a descriptor that the code never had, from a process that it cannot trace.
"""
