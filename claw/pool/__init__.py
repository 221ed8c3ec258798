"""`claw pool`: questions to the pool, and curation."""
