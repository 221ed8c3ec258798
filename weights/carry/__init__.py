"""Versions carried to several hosts by one collective, in processes that can only end (docs/adr/0031)."""
