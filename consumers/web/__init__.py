"""The shell of a page: app factory, sign-in, headers, vendored libraries. Imported by pages alone.

Invariant: a request from another site, or with a name that is not this machine's where no keys are asked for, reaches no
route; every answer carries the policy that lets a browser run our files and nothing else (`guard.py`).
"""
