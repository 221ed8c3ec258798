"""Compressed bodies: what is captured is what they stand for, and a bomb ends at the limit."""

import gzip
import json
import zlib

import aiohttp
import pytest

from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import ASK, PATH, House
from tests.gateway.raw import say
from tests.patience import until_async

BODY = json.dumps(ASK).encode()
ZIPPED = gzip.compress(BODY, mtime=0)


async def post(house: House, body: bytes, encoding: str, path: str = PATH) -> tuple[int, dict]:  # type: ignore[type-arg]  # JSON of any shape
    async with (
        aiohttp.ClientSession() as session,
        session.post(house.url + path, data=body, headers={"content-encoding": encoding}) as reply,
    ):
        return reply.status, await reply.json()


@pytest.mark.parametrize(("encoding", "body"), [("gzip", ZIPPED), (" X-GZIP", ZIPPED), ("identity", BODY), ("", BODY)])
async def test_a_compressed_body_is_what_it_stands_for(
    house: House, engine: ScriptedEngine, encoding: str, body: bytes
) -> None:
    """The engine and the log get plain JSON, and nothing is held once the reply is out."""
    assert (await post(house, body, encoding))[0] == 200
    assert house.captured[0].request.suffix == BODY
    assert engine.requests[0].json["messages"] == ASK["messages"]
    assert "content-encoding" not in engine.requests[0].headers
    await until_async(
        lambda: house.door.held_bytes == 0
    )  # given back after the reply's last byte, which the client may read first


async def test_control_requests_are_decoded_too(house: House) -> None:
    """One door for all bodies."""
    assert (await post(house, gzip.compress(b'{"value": 1}'), "gzip", "/t/g/rewards"))[0] == 200


@pytest.mark.parametrize("split", [1, 7, 18, len(ZIPPED) - 1])
async def test_a_body_may_come_in_pieces(house: House, split: int) -> None:
    """Wherever it is cut, its end included."""
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-encoding: gzip\r\n"
    head += f"content-length: {len(ZIPPED)}\r\n\r\n"
    reply = await say(house.url, head.encode() + ZIPPED[:split], ZIPPED[split:], pause_s=0.01)
    assert reply.startswith(b"HTTP/1.1 200")


REFUSED = {
    "zstd": ("zstd", b"\x28\xb5\x2f\xfd", 415, "unknown_encoding"),
    "brotli": ("br", BODY, 415, "unknown_encoding"),
    "twice": ("gzip, gzip", gzip.compress(ZIPPED), 415, "unknown_encoding"),
    "plain": ("gzip", BODY, 400, "bad_encoding"),
    "zlib's own": ("gzip", zlib.compress(BODY), 400, "bad_encoding"),
    "cut off": ("gzip", ZIPPED[:-3], 400, "bad_encoding"),
    "wrong sum": ("gzip", ZIPPED[:-8] + bytes(4) + ZIPPED[-4:], 400, "bad_encoding"),
    "two of them": ("gzip", ZIPPED + ZIPPED, 400, "bad_encoding"),
    "a bomb": ("gzip", gzip.compress(bytes(50 << 20)), 413, "body_too_large"),
    "a bomb in its tail": ("gzip", gzip.compress(BODY + b" " * (5 << 20)), 413, "body_too_large"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_decoded_is_refused(hardened: House, name: str) -> None:
    """Before any engine hears of it; the next request is served, and nothing is held."""
    encoding, body, status, code = REFUSED[name]
    before = len(hardened.raw_records())
    got, reply = await post(hardened, body, encoding)
    assert (got, reply["error"]["code"]) == (status, code)
    assert (len(hardened.raw_records()), hardened.door.held_bytes) == (before, 0)
    assert (await post(hardened, ZIPPED, "gzip"))[0] == 200
