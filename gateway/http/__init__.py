"""The one door, for every request: its connection, its key, route and limits, its reply, and its
line in the access log."""
