"""Training on existing samples of any policy: `claw train --offline pool|DATASET`. No agents, no workers.

Invariant: nothing is written to the log. The run's own events stand in a file of its `out_dir`, and the order of `run.py`,
resuming and replaying are those of every run.
"""
