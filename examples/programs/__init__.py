"""Small programs against hidden tests: the agent writes Python, a confined process runs it."""
