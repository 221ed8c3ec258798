"""HTTP entry: forwards model calls, captures them exactly, takes in rewards and lifecycle, admits groups."""
