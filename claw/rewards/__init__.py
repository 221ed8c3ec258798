"""`claw rewards`: scorers run, are tried on a trajectory, and say what they cost."""
