"""Measurements, one folder per room: `make bench-<room>` prints a table and writes bench/out/<room>.json."""
