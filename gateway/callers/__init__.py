"""The caller of a model call: its trajectory, by what it is known, what the call is for, and
the program that made it."""
