"""Exports a dataset from the log: facts up to an offset vector, folded here, as Parquet files with a manifest.

Input: claw.calls and claw.rewards, by position, never the pool; output: files. Order: partition, then the first captured
call of a group, then trajectory_id, then the order of calls. Delivery: a directory with a manifest is whole. A replay
of a manifest gives the same bytes: nothing here reads a clock, and a manifest holds offsets, never times.
"""
