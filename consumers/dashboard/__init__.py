"""The dashboard: pool, runs and tokens on a page, live. It reads only topics; no room imports it.

Invariant: the page uses only `/api/v1`, and its address holds the whole view. People's actions on it are
the events that `claw pool` and `claw label` write, made by the same code.
"""
