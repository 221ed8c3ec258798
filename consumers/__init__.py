"""Optional readers of the topics: dashboard, export, lineage, quality, rewards, verify; each deletable without harm, but that
the dashboard shows what lineage folds, and goes with it. pool, runs, sandbox and web are libraries of several of them.

They read the same topics as everybody, never stand in a path, and write only what the catalogue allows them.
"""
