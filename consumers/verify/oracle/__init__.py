"""The pool, computed a second way: all records from the complete set of facts, in one pass, with plain dicts.

Invariant: nothing of `datapool` is imported here. Where this folder and the folds disagree, one of them is wrong about
the text in `datapool/__init__.py`.
"""
