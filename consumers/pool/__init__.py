"""Answers questions about the pool and makes acts on it, for `claw` and the dashboard alike.

Input: rows of an open view, facts by position, runs' history. Output: records, or events that the caller's producer
appends. It prints and opens nothing, so a question has one answer for every caller.
"""
