"""Makes batches of groups: the spec of a batch, its groups, and the sequences to train. Pure."""
