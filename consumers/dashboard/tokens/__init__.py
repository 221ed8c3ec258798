"""The token view of a call: its ids as exact text, what each token was sampled and trained with, its raw record.

Input: step rows of an open view, plans of runs, facts by position, a tokenizer's file. It writes nothing.
"""
