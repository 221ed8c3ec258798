"""The errors that stop the `claw` command. Each message is one line for a person and says what to do; the command exits
with 2."""


class CannotRun(Exception):
    """A precondition is missing (no Java, no broker, a port in use): the message names the ways out."""
