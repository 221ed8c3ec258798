"""Optional readers of the topics (reward workers, dashboard, export, lineage); each deletable without harm. None yet.

They will read the same topics as everybody, never stand in a path, and write only what the catalogue allows them.
"""
