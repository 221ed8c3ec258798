"""What a worker that leaves tells its supervisor."""

import pytest

from claw_r1.eventlog.errors import BrokerUnreachable, Fenced
from claw_r1.streams.errors import ExitCode, FoldVersionMismatch, RowOfAnotherVersion, StoreFailed, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Fenced("another owner"), ExitCode.FENCED),
        (FoldVersionMismatch("rebuild it"), ExitCode.REFUSED),
        (RowOfAnotherVersion("start the newer one"), ExitCode.REFUSED),
        (StoreFailed("the disk is full"), ExitCode.BROKE),
        (BrokerUnreachable("nobody answers"), ExitCode.BROKE),
        (ZeroDivisionError("a bug"), ExitCode.BROKE),
    ],
)
def test_the_exit_code_says_whether_a_new_start_helps(error, code):
    """A pool of another fold version is refused like any other start that cannot be; the reason is one line, no traceback."""
    assert exit_code_of(error) is code
