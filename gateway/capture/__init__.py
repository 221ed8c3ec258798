"""A call becomes an event: what is kept of it, how it is written against earlier calls, and when it is stored."""
