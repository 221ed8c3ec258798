"""The beginning of every program of ours."""
