"""Measurements, one module per room: `make bench-<room>` prints a table and writes bench/out/<room>.json."""
