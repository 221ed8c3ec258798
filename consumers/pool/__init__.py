"""Questions to the pool and acts on it, for people: what `claw` and the dashboard both say.

Input: the rows of an open view, facts by position, what runs did. Output: records, or events that a producer of the caller
appends. It prints nothing and opens nothing, so one question has one answer whoever puts it.
"""
