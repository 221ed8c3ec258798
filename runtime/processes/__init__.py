"""Processes that a program starts: each child, its end with its parent, restarts, and all of them together."""
