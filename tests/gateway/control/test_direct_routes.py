"""Frequent control requests are answered at the door: in the words in which FastAPI answers them, and with the same events."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claw_r1.gateway.control.direct_routes import DirectRoutes
from tests.gateway.house import House
from tests.gateway.raw import send

PATHS = ("/groups", "/v1/groups", "/t/g/v1/register_trajectory", "/t/g/v1/complete_trajectory", "/t/g/v1/rewards")
NAMES = ("value", "name", "source", "call_id", "step_index", "revision", "size", "run_id", "task", "status", "ordinal")
SCALARS = st.sampled_from(["", "x", "ü", "\n", "\ud800", "failed", 0, 1, -1, 1.5, 1e300, 1 << 70, True, None, [], {}])
BODIES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.sampled_from((*NAMES, "unknown")), SCALARS, max_size=4),
    st.dictionaries(st.just("value"), st.floats(-2, 2), min_size=1),
)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[House, House]]:
    """A gateway, and one that leaves every control request to FastAPI."""
    with House() as direct, House() as through_fastapi:
        routes = through_fastapi.door.control
        assert isinstance(routes, DirectRoutes)
        through_fastapi.door.control = routes.otherwise
        yield direct, through_fastapi


async def answers(both: tuple[House, House], path: str, raw: bytes | None, key: str) -> list[tuple[int, object]]:
    """Both answers; under one idempotency key they make the same events."""
    replies = [await send(house, "POST", path, raw, x_claw_idempotency_key=key) for house in both]
    return [(status, json.loads(body)) for status, body in replies]


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, number=st.integers(0, 1 << 60))
async def test_every_body_is_answered_as_by_fastapi(
    both: tuple[House, House], path: str, body: object, number: int
) -> None:
    """Status, words and the events' ids are the same, for good bodies and bad ones."""
    direct, through_fastapi = await answers(both, path, json.dumps(body).encode(), str(number))
    assert direct == through_fastapi


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "raw", [None, b"", b" ", b"null", b"{", b"\xff", b'{"value": NaN}', b"[" * 5000, b'{"value": 1} x']
)
async def test_what_is_no_json_is_refused_as_by_fastapi(
    both: tuple[House, House], path: str, raw: bytes | None
) -> None:
    """A body that is missing, cut off or no JSON has the same refusal."""
    direct, through_fastapi = await answers(both, path, raw, repr(raw))
    assert direct == through_fastapi


async def test_other_methods_and_spellings_are_fastapis(both: tuple[House, House]) -> None:
    """What is not served by POST, or is spelt another way, is answered as before."""
    for method, path in (("GET", "/groups"), ("PUT", "/t/g/v1/rewards"), ("POST", "/%67roups"), ("POST", "/groups/")):
        direct, through_fastapi = [await send(house, method, path, b"{}", x_claw_idempotency_key="k") for house in both]
        assert direct == through_fastapi
