"""`claw doctor`: what would not hold, and what mends it."""
