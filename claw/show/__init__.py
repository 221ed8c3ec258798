"""What is there, for a person to read."""
