"""How long a test waits for what must come: one figure for a machine under load, where nothing takes its usual time.

A test that passes never waits it out; one that measures has a bound of its own.
"""

PATIENCE_S = 60.0
