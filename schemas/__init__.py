"""The words of the system: event schemas, their Python types, the codec, keys and the topic catalogue.

Invariant: names of topics, keys and schemas exist here and nowhere else, and this room imports nothing of ours.
"""
