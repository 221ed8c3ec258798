"""The pool as its readers see it: rows on disk and from the log, questions to them, and why
something is as it is."""
