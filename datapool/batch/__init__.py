"""Groups into batches: what a batch is made of, which groups are in it, and the sequences to train. Pure."""
