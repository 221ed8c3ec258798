"""Runs a model's code so that it can harm only itself. Imports nothing of ours.

Invariant: trusted results come over a descriptor that the code never had, from a process that it cannot trace.
"""
