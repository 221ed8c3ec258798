"""Claw-R1: the one import name of the rooms, which lie at the top of the repository (docs/adr/0022)."""
