"""The way to engines: which of them takes a call, pooled connections to it, and when a call is tried again."""
