"""The dashboard's first view: what is where on the way from a call to new weights, how quick that is, and what is
wrong."""
