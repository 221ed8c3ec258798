"""JSON over HTTP: what is tried again, what is not, and that everything ends by its deadline with a word."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest
from aiohttp import web

from claw_r1.consumers.rewards.http_client import HttpClient, Refused
from claw_r1.consumers.rewards.scorer import GaveUp
from tests.consumers.rewards.scripted_http import serving


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient()
    yield client
    client.close()


def post(client: HttpClient, url: str, timeout_s: float = 5.0, body: object = "x") -> object:
    return client.submit(client.post_json(url, {"text": body}, {}, time.monotonic() + timeout_s)).result()[0]


def gave_up(client: HttpClient, url: str, timeout_s: float = 5.0, body: object = "x") -> GaveUp:
    with pytest.raises(GaveUp) as caught:
        post(client, url, timeout_s, body)
    return caught.value


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 507, 520, 524, 529])
def test_what_passes_is_tried_again_until_it_has_passed(client: HttpClient, status: int) -> None:
    with serving(lambda n: web.Response(status=status) if n < 3 else web.json_response({"n": n})) as (url, times):
        assert post(client, url) == {"n": 3}
    assert len(times) == 4


def test_the_server_s_own_pause_is_kept(client: HttpClient) -> None:
    too_many = {"retry-after": "1"}
    with serving(lambda n: web.json_response({}, status=200 if n else 429, headers=too_many)) as (url, times):
        post(client, url)
    assert times[1].at_s - times[0].at_s >= 1.0


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 1 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 1 Jan 1 00:00:00 +2300",
        "1 Jan 24 0:0 +9" + "9" * 30,
        "nan",
        "-1",
        "1e999",
    ],
)
def test_a_pause_that_is_none_is_ours(client: HttpClient, value: str) -> None:
    headers = {"retry-after": value}
    with serving(lambda n: web.json_response({}, status=200 if n else 429, headers=headers)) as (url, _times):
        assert post(client, url) == {}


def test_a_pause_beyond_the_deadline_is_not_waited_for(client: HttpClient) -> None:
    with serving(lambda _: web.Response(status=503, text="busy", headers={"retry-after": "60"})) as (url, times):
        error = gave_up(client, url)
    assert (error.reason, len(times)) == ("unavailable", 1)
    assert "HTTP 503: busy" in error.detail


def test_a_refused_connection_is_unavailable_by_the_deadline(client: HttpClient) -> None:
    with socket.socket() as nobody:  # it has the port, so that nobody else gets it, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        assert gave_up(client, f"http://127.0.0.1:{port}/", timeout_s=0.5).reason == "unavailable"


def test_silence_ends_at_the_deadline(client: HttpClient) -> None:
    with serving(lambda _: 30.0) as (url, _times):
        assert gave_up(client, url, timeout_s=0.3).reason == "deadline"


def test_a_try_that_the_deadline_cuts_does_not_hide_what_was_heard(client: HttpClient) -> None:
    with serving(lambda n: 30.0 if n else web.Response(status=503, text="busy")) as (url, times):
        error = gave_up(client, url, timeout_s=2.0)
    assert (error.reason, len(times)) == ("unavailable", 2)
    assert "HTTP 503: busy" in error.detail


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 501])
def test_what_is_refused_is_not_tried_again(client: HttpClient, status: int) -> None:
    with serving(lambda _: web.Response(status=status, text="no\nsuch thing")) as (url, times):
        error = gave_up(client, url)
    assert isinstance(error, Refused)
    assert (error.reason, error.status, error.body, len(times)) == ("refused", status, "no\nsuch thing", 1)
    assert "\n" not in error.detail


@pytest.mark.parametrize(
    "text",
    [b"<html>Welcome</html>", b"", b"\xff\xfe", b"[" * 100_000],
    ids=["html", "empty", "no utf-8", "deep"],
)
def test_garbage_is_not_json(client: HttpClient, text: bytes) -> None:
    with serving(lambda _: web.Response(body=text)) as (url, _times):
        error = gave_up(client, url)
    assert error.reason == "not_json"
    assert len(error.detail) < 500


def test_what_is_no_unicode_is_not_sent(client: HttpClient) -> None:
    with serving(lambda _: web.json_response({})) as (url, times):
        assert gave_up(client, url, body="\ud800").reason == "unreadable"
        assert post(client, url, body="nul \0 and 2 MB" + "x" * (2 << 20)) == {}
    assert len(times) == 1


def test_an_url_that_is_none_is_a_word_too(client: HttpClient) -> None:
    assert gave_up(client, "http://[", timeout_s=0.2).reason == "unavailable"


def test_closing_ends_what_is_under_way(client: HttpClient) -> None:
    with serving(lambda _: 30.0) as (url, times):
        future = client.submit(client.post_json(url, {}, {}, time.monotonic() + 60))
        while not times:
            time.sleep(0.01)
        client.close()
        client.close()
        with pytest.raises(CancelledError):
            future.result(timeout=1)
