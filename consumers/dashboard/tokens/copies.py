"""A record as text to paste: for a shell, for a test.

Invariant: pasted text is printable ASCII and line breaks, each word of somebody else is quoted, so that a terminal or a file gets
what is read here. No secret is in it: headers of a request are never captured, and a key is a variable of the shell.
"""

import json
import shlex
from collections.abc import Mapping
from urllib.parse import quote

import orjson

from claw_r1.eventlog.records import Record
from claw_r1.schemas.events import CallCaptured, Event
from claw_r1.schemas.http import CHANNEL_HEADER

CHANNEL = "replay"
"""The channel of a call that is made again: neither trained nor an evaluation."""
PATHS: Mapping[str, str] = {
    "chat": "chat/completions",
    "completions": "completions",
    "responses": "responses",
    "messages": "messages",
    "generate": "generate",
}
"""`CallCaptured.protocol` -> the end of the path of such a request (docs/http.md)."""
BODY_BYTES_MAX = 256_000
FIXTURE_BYTES_MAX = 65_536
LINE = 64
"""Hexadecimal digits per line, as in schemas/examples."""


def console_consumer(record: Record) -> str:
    """The command that prints the record by Kafka's own tool."""
    place = f"--topic {shlex.quote(record.topic)} --partition {record.partition} --offset {record.offset}"
    return f"claw broker tool console-consumer {place} --max-messages 1 --formatter-property print.key=true --formatter-property print.headers=true"


def curl_replay(call: CallCaptured, body: bytes | None) -> tuple[str | None, str | None]:
    """The command that asks the gateway the same again, in a trajectory of its own; or None and why there is none."""
    path = PATHS.get(call.protocol)
    if path is None:
        return None, f"A call of protocol {call.protocol} was sampled elsewhere: there is no request to repeat."
    if body is None:
        return None, "Its request was written against an earlier one that is not there any more."
    if len(body) > BODY_BYTES_MAX:
        return None, f"Its request of {len(body):,} bytes is too long to paste: `claw export` writes it to a file."
    try:
        text = json.dumps(orjson.loads(body))  # in ASCII: nothing that a terminal would act on
    except orjson.JSONDecodeError:
        return None, "Its request is no JSON."
    ids = "/".join(quote(each, safe="") for each in (f"replay of {call.call_id}", f"replay of {call.group_id}"))
    headers = (
        '"content-type: application/json"',
        f'"{CHANNEL_HEADER}: {CHANNEL}"',
        '"authorization: Bearer $CLAW_API_KEY"',
    )
    return (
        f"printf %s {shlex.quote(text)} |\n"
        f'  curl -sS "${{CLAW_GATEWAY:-http://127.0.0.1:8000}}"{shlex.quote(f"/{ids}/v1/{path}")} '
        f"{' '.join(f'-H {header}' for header in headers)} --data-binary @-"
    ), None


def pytest_fixture(record: Record, event: Event | None) -> str | None:
    """The record's bytes as a fixture, in lines as schemas/examples has them; None where they are too many to paste."""
    if not record.value or len(record.value) > FIXTURE_BYTES_MAX:
        return None
    digits = record.value.hex()
    lines = "\n".join(f'        "{digits[at : at + LINE]}"' for at in range(0, len(digits), LINE))
    kind, result, imports = "bytes", "bytes.fromhex(digits)", ""
    if event is not None:
        kind, result = type(event).__name__, f"decode({result})"
        imports = f"\nfrom claw_r1.schemas.codec import decode\nfrom claw_r1.schemas.events import {kind}\n"
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    return f'''import pytest
{imports}

@pytest.fixture
def record() -> {kind}:
    """{place}"""
    digits = (
{lines}
    )
    return {result}
'''
