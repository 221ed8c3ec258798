"""Optional readers of the topics (export, feedback, lineage, quality, rewards, runs, verify; later the dashboard); each deletable without harm.

They read the same topics as everybody, never stand in a path, and write only what the catalogue allows them.
"""
