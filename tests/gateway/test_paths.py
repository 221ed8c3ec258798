"""Which trajectory and route a path names."""

import pytest

from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.paths import Identity, Route, resolve
from claw_r1.gateway.protocols import PROTOCOLS

T1 = Identity("g", "t")
CHAT = dict(PROTOCOLS)["chat/completions"]


@pytest.mark.parametrize(
    ("path", "route"),
    [
        (b"/t/g/v1/chat/completions", Route("chat/completions", T1, CHAT)),
        (b"/t/g/chat/completions", Route("chat/completions", T1, CHAT)),
        (b"/t/v1/chat/completions", Route("chat/completions", Identity("t", "t"), CHAT, lone=True)),
        (b"/t/chat/completions", Route("chat/completions", Identity("t", "t"), CHAT, lone=True)),
        (b"/v1/chat/completions", Route("chat/completions", None, CHAT)),
        (b"/chat/completions", Route("chat/completions", None, CHAT)),
        (b"/t/g/v1/models", Route("models", T1)),
        (b"/t/g/rewards", Route("rewards", T1)),
        (b"/t/g/v1/complete_trajectory", Route("complete_trajectory", T1)),
        (b"/a%2Fb/%E2%98%83/v1/rewards", Route("rewards", Identity("☃", "a/b"))),
        (b"/t/v1/v1/rewards", Route("rewards", Identity("v1", "t"))),
        (b"/x/t/g/v1/chat/completions", None),
        (b"/t/g/v1/embeddings", None),
        (b"/groups", None),
        (b"/", None),
        (b"/t/g/v1/chat/completions/", None),
    ],
)
def test_paths_name_trajectories(path: bytes, route: Route | None) -> None:
    """Identity is read from the raw path; an encoded slash belongs to an id."""
    assert resolve(path) == route


@pytest.mark.parametrize(
    "path", [b"//g/v1/rewards", b"/t//rewards", b"/t%00/g/rewards", b"/%ED%A0%80/g/rewards", b"/%ff/g/rewards"]
)
def test_bad_ids_are_refused(path: bytes) -> None:
    """Empty ids, control characters, broken UTF-8 and lone surrogates are a bad request."""
    with pytest.raises(InvalidRequest):
        resolve(path)


def test_ids_have_a_length() -> None:
    """512 characters are an id, 513 are none."""
    assert resolve(b"/" + b"x" * 512 + b"/g/rewards") is not None
    with pytest.raises(InvalidRequest):
        resolve(b"/" + b"x" * 513 + b"/g/rewards")
