"""The dashboard: pool, runs and tokens on a page, live. It reads topics and nothing else; nobody imports it.

Invariant: the page uses only `/api/v1`, and every address of it holds what it shows. What people do on it are
the events that `claw pool` and `claw label` write, made by the same code.
"""
