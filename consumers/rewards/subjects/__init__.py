"""From records of the log to subjects: whom a verdict names, what its content's digest is, how its text is put together."""
