"""Optional readers of the topics (dashboard, export, feedback, lineage, quality, rewards, runs, verify); each deletable without harm.

They read the same topics as everybody, never stand in a path, and write only what the catalogue allows them.
"""
