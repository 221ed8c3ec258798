"""Facts into the pool: a Faust shell around the folds of `datapool`, and the reactors that act when nothing happens.

Input: claw.calls and claw.rewards, key group_id, co-partitioned, at least once, in order per partition. Output:
claw.datapool.{steps,trajectories,groups}, claw.streams.positions and claw.dead-letters, one transaction per partition and
flush; the reactors write plain facts to claw.calls. A replay from offset 0 writes the same records again.
"""
