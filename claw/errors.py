"""What stops the `claw` command. Each message is one line for a person and says what to do; the command exits with 2."""


class CannotRun(Exception):
    """A precondition is missing (no Java, no broker, a port in use): the message names the ways out."""


class ComponentDied(CannotRun):
    """A component of the local stack died more often than its restart budget allows."""

    def __init__(self, name: str, exit_code: int | None, log_path: str) -> None:
        super().__init__(f"{name} died {describe_exit(exit_code)} and its restart budget is spent; its log: {log_path}")
        self.name = name
        self.exit_code = exit_code


def describe_exit(exit_code: int | None) -> str:
    """`Popen.returncode` in words: negative means a signal."""
    if exit_code is None:
        return "(exit code unknown)"
    return f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
