"""Requests of other sites reach no route, and every answer carries the policy."""

import socket
from collections.abc import Iterator

import httpx
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.web.guard import PageGuard
from claw_r1.consumers.web.serve import bind_page, url_of
from tests.consumers.dashboard.stage import DashboardStage, episode

BODY = {"group_id": "a", "trajectory_id": "a0", "thumb": True}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with DashboardStage(episode("a", "a0", "q", "r")).served() as address:
        yield address


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"host": ""},
    ],
    ids=lambda headers: "-".join(map(str, *headers.items())).replace("/", ""),
)
def test_another_site_is_refused(url: str, headers: dict[str, str]) -> None:
    """By its name (DNS rebinding) or by its origin, whatever it asks for; the refusal has the headers, too."""
    for path in ("/", "/api/v1/session", "/api/v1/queue", "/web/shell.js"):
        answer = httpx.get(url + path, headers=headers)
        assert answer.status_code == 403
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_links_to_a_document_and_reads_nothing(url: str, site: str) -> None:
    """An image, a script or a form of another page sends no Origin with its GET; a link from a chat opens the page."""
    embedded, link = ({"sec-fetch-site": site, "sec-fetch-mode": mode} for mode in ("no-cors", "navigate"))
    for path in ("/api/v1/session", "/web/shell.js", "/curation"):
        assert httpx.get(url + path, headers=embedded).status_code == 403
    assert httpx.get(f"{url}/api/v1/session", headers=link).status_code == 403
    assert httpx.get(f"{url}/curation?filter=x", headers=link).status_code == 200
    assert httpx.get(f"{url}/curation/", headers=link).status_code != 403
    for own in ("same-origin", "none"):
        assert httpx.get(f"{url}/api/v1/session", headers={"sec-fetch-site": own}).status_code == 200


def test_a_write_needs_session_token_and_site(url: str) -> None:
    """Without cookie or its token 401 (the page then asks for them anew); sent by another site's form 403."""
    with httpx.Client(base_url=url) as http:
        assert http.post("/api/v1/judgements", json=BODY).status_code == 401
        token = http.get("/api/v1/session").json()["token"]
        assert http.post("/api/v1/judgements", json=BODY).status_code == 401
        assert http.post("/api/v1/judgements", json=BODY, headers={"x-page-token": "x"}).status_code == 401
        good = {"x-page-token": token}
        assert http.post("/api/v1/acts/undo", headers={**good, "sec-fetch-site": "cross-site"}).status_code == 403
        while http.get("/api/v1/queue").json()["reading"]:
            pass
        assert http.post("/api/v1/judgements", json=BODY, headers={**good, "origin": url}).status_code == 200


def test_the_cookie_is_for_this_site_alone(url: str) -> None:
    """HttpOnly and SameSite=Strict, and one name per port."""
    cookie = httpx.get(f"{url}/api/v1/session").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert cookie.startswith(f"claw_127_0_0_1_{url.rpartition(':')[2]}=")


@pytest.mark.parametrize(
    "path", ["/", "/web/shell.js", "/api/v1/session", "/api/v1/nothing", "/page/../settings.py", "/live"]
)
def test_every_answer_has_the_headers(url: str, path: str) -> None:
    """Good or bad, a file or JSON."""
    headers = httpx.get(url + path).headers
    policy = headers["content-security-policy"]
    assert "script-src 'self' 'sha256-" in policy
    assert "trusted-types 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"], headers["cache-control"]) == (
        "nosniff",
        "no-referrer",
        "no-store",
    )


def test_a_body_has_a_bound(url: str) -> None:
    """More than `body_bytes_max` is refused before it is read, and so is one of unknown length."""
    with httpx.Client(base_url=url) as http:
        http.headers["x-page-token"] = http.get("/api/v1/session").json()["token"]
        assert http.post("/api/v1/judgements", content=b"x" * (3 << 20)).status_code == 413
        assert http.post("/api/v1/judgements", content=iter([b"{}"])).status_code == 411
        assert http.request("DELETE", "/api/v1/session", content=iter([b"{}"])).status_code == 411
        assert http.delete("/api/v1/session").status_code == 204


def test_a_page_on_all_addresses_is_printed_by_this_machines_name() -> None:
    """Nobody can open 0.0.0.0."""
    with bind_page(DashboardSettings(host="0.0.0.0", keys=True, port=0)) as listener:
        assert url_of(listener, "http") == f"http://{socket.gethostname()}:{listener.getsockname()[1]}"


def test_without_keys_the_page_is_for_this_machine() -> None:
    """Another address is refused when the settings are read."""
    with pytest.raises(ValidationError, match="--keys"):
        DashboardSettings(host="0.0.0.0")
    assert DashboardSettings(host="0.0.0.0", keys=True).host == "0.0.0.0"


def test_the_api_is_documented(url: str) -> None:
    """OpenAPI names every route that the page uses."""
    paths = httpx.get(f"{url}/api/v1/openapi.json").json()["paths"]
    assert {
        f"/api/v1/{name}" for name in ("session", "queue", "subject", "judgements", "preferences", "acts/undo")
    } <= paths.keys()


async def test_behind_a_proxy_its_address_counts_and_no_header_of_it() -> None:
    """Writes come from the proxy's origin or from where they were sent; the scheme is that of the settings; two hosts are none."""

    async def scheme(request: Request) -> Response:
        return Response(request.url.scheme)

    page = Starlette(routes=[Route("/", scheme, methods=["POST"])])
    guard = PageGuard(page, keys=True, script_hashes=(), body_bytes_max=9, public_url="https://pool.example")
    forwarded = {"x-forwarded-proto": "http", "x-forwarded-host": "evil.example", "content-length": "0"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://inside:8200") as http:
        for origin, status in (
            ("https://pool.example", 200),
            ("http://inside:8200", 200),
            ("https://evil.example", 403),
        ):
            answer = await http.post("/", headers={**forwarded, "origin": origin})
            assert (answer.status_code, answer.text == "https") == (status, status == 200)
        twice = await http.post("/", headers=[("host", "inside"), ("host", "inside"), ("content-length", "0")])
        assert (twice.status_code, "one Host header" in twice.text) == (400, True)
