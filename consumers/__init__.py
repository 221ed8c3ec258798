"""Optional readers of the topics (export, lineage, quality, runs, verify; later reward workers, dashboard); each deletable without harm.

They read the same topics as everybody, never stand in a path, and write only what the catalogue allows them.
"""
