"""What every program of ours begins with."""
