"""The people who may sign in, by `claw.keys` while a page is open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from claw_r1.consumers.web.sessions import PageSessions
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.protocols import Reader

TIMEOUT_S = 30.0


@contextmanager
def keys_followed(open_reader: Callable[[], Reader], sessions: PageSessions) -> Iterator[None]:
    """open_reader: of `claw.keys`. All keys are known before the block, and each change within it; without keys nothing
    is read. Raises LogError."""
    if sessions.keys is None:
        yield
        return
    follower = Follower(open_reader(), sessions.keys.apply, sessions.fail)
    try:
        follower.start()
        follower.wait_caught_up(TIMEOUT_S)
        yield
    finally:
        follower.stop()
