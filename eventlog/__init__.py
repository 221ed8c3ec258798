"""The log: the one room that speaks Kafka (Faust in `streams/` aside).

Invariant: a record that `publish` or `commit` returned a position for is in the log; a reader sees committed records
only, in order, each at its position, and gets an error where history before its position is gone.
"""
