"""The log of a run: its events, written in transactions, and the history that they give."""
