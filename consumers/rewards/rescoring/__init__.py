"""The history scored again by a new version. Deletable: live scorers know nothing of it."""
