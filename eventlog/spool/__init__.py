"""Records that the log did not take in time, kept on the local disk until it does."""
