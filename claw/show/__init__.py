"""The state of the system for a person to read."""
