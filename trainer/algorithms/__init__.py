"""Losses, corrections, divergences, norms and values as functions of flat vectors of trained tokens. Pure.

Invariant: nothing here knows rows, trees, ranks or settings. A table maps names to functions (docs/algorithms.md).
"""
