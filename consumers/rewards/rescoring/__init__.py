"""The history scored again by a new version, and what that changed. Deletable: live scorers know nothing of it."""
