"""The errors that stop a consumer or the command that runs it. Each message is one line for a person."""


class ConsumerError(Exception):
    """Root of the errors of all consumers: a command names this one, so that each consumer stays deletable."""
