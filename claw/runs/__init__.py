"""`claw runs`: training runs as the log tells them, in lists, pictures and pairs. It reads, and writes
nothing but pictures."""
