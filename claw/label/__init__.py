"""`claw label`: a person judges a trajectory or a call from the terminal."""
