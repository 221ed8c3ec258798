"""Makes subjects from records of the log: the target of a verdict, its content's digest, and its assembled text."""
