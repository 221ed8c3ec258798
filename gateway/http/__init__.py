"""The one door: connections, requests, replies, who may ask, how much one process holds, and the line that is logged for each."""
