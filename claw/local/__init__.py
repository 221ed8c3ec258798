"""The stack of this machine: its broker, its processes, its ports."""
