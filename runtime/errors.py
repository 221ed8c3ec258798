"""The errors that stop a program that keeps others running. Each message is one line for a person."""


class ProcessError(Exception):
    """A process that should run does not, or not in its time; or it runs already."""


class ComponentDied(ProcessError):
    """A component died more often than its restart budget allows, or cannot start at all."""

    def __init__(self, name: str, exit_code: int, log: str) -> None:
        super().__init__(f"{name} died {describe_exit(exit_code)} and its restart budget is spent; its log: {log}")
        self.exit_code = exit_code


def describe_exit(exit_code: int) -> str:
    """`Popen.returncode` in words: negative means a signal."""
    return f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
