"""Credentials in what an engine says: taken out, however JSON writes them, and cheap where there are none."""

import json

import pytest

from claw_r1.gateway.capture.redaction import redacted_body

ODD = 'sk/ab"c\\d-é9'


def ascii_only(text: str) -> str:
    """JSON with every character as its number."""
    return '"' + "".join(f"\\u{ord(one):04x}" for one in text) + '"'


@pytest.mark.parametrize("before", ["", "\\n", "\\\\", '\\\\\\"', "\\u2019"])
@pytest.mark.parametrize("written", [json.dumps(ODD), json.dumps(ODD).replace("/", "\\/"), ascii_only(ODD)])
def test_a_secret_is_recognised_however_json_writes_it(before: str, written: str) -> None:
    """A secret is taken out also where it is written by numbers, stands behind backslashes, or follows other escapes."""
    kept = redacted_body(f'{{"a": "{before}{written[1:-1]}"}}'.encode(), [ODD])
    assert json.loads(kept)["a"] == json.loads(f'"{before}"') + "[credential]"


def test_a_long_reply_without_the_secret_is_searched_and_not_read() -> None:
    """Line breaks alone are no reason: reading a megabyte of log-probabilities took a quarter of a second of the loop."""
    broken = json.dumps({"content": 'a\n"b"\\ é/'}).encode()[:-1]  # what is read and is no JSON is written anew
    assert redacted_body(broken, ["sk-secret-key"]) is broken
    assert redacted_body(broken, ["é/"]) is not broken
