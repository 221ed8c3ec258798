"""Measurements, one folder per bench: `make bench-NAME` prints a table and writes bench/out/NAME.json."""
