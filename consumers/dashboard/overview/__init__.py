"""The dashboard's first view: the backlog at each stage from a call to new weights, the rates, and the
faults."""
