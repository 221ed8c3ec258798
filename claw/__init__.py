"""The commands that a person types: the `claw` command, the local stack, the demo.

Composition only: every decision lives in a room, this one starts rooms and shows what they did.
"""
