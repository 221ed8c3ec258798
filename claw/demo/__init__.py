"""`claw demo`: everything on this machine, from an untrained model to a measured result."""
