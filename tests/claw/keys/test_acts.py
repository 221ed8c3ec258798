"""`claw keys` on a real log: what is written, what is printed, and that nobody but the reader of stdout has the key."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from claw_r1.claw.cli import REFUSALS, app
from claw_r1.claw.keys import records
from claw_r1.claw.keys.acts import as_text, row
from claw_r1.eventlog.kafka.reader import read_topics
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.topics import KEYS
from tests import facts

Run = Callable[..., Any]  # what the command printed as JSON, and its exit code


@pytest.fixture
def claw(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `claw keys …`."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", log_settings.bootstrap_servers)

    def run(*words: str) -> Any:
        try:
            app(["keys", *words, "--prefix", log_settings.prefix, "--json"])
        except SystemExit as end:
            lines = capsys.readouterr().out.splitlines()  # in this process log lines go to stdout, too
            return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None, end.code
        except REFUSALS as refusal:
            return str(refusal), 2
        raise AssertionError("a command ends with an exit code")

    return run


@pytest.mark.kafka
def test_a_key_lives_from_create_over_rotate_to_revoke(claw: Run, log_settings: LogSettings) -> None:
    """Rotated twice within an overlap, the one before last ends too; each command says which keys stand."""
    rules = ("--alias", "claude-*=tiny", "--sampling", "temperature=1", "--strip-strict", "--idle-s", "60")
    first, code = claw("create", "laptop", "--role", "agent", "--expires-in", "30d", "--scope", "lab", *rules)
    assert (code, first["state"], first["hash"]) == (0, "valid", sha256(first["key"].encode()).hexdigest()[:12])
    assert first["aliases"] == {"claude-*": "tiny"}
    assert claw("create", "laptop")[1] == 2, "one of this name is valid"
    second, third = claw("rotate", "laptop")[0], claw("rotate", "laptop", "--overlap", "90d")[0]
    terms = ("name", "role", "scope", "aliases", "sampling", "strip_strict", "idle_s", "state")
    assert [each[name] for each in (second, third) for name in terms] == [first[name] for name in terms] * 2
    assert len({first["key"], second["key"], third["key"]}) == 3
    ends = {each["hash"]: each["expires"] for each in claw("list")[0]["keys"]}
    newest = {key.digest[:12]: key for key in records.newest_keys(log_settings)}
    assert newest[first["hash"]].expires_us < now_us() + 3600 * 10**6 + 1  # type: ignore[operator]  # the kind that this test makes has it
    assert ends[second["hash"]] == second["expires"], "an overlap makes no key live longer"
    assert ends[third["hash"]] >= second["expires"]
    gone = {**{name: value for name, value in third.items() if name != "key"}, "state": "revoked"}
    assert claw("revoke", third["hash"]) == ({"revoked": [gone]}, 0)
    revoked, code = claw("revoke", "laptop")
    assert ({each["hash"] for each in revoked["revoked"]}, code) == ({first["hash"], second["hash"]}, 0)
    assert claw("revoke", "laptop") == ({"revoked": []}, 1)
    assert claw("rotate", "laptop")[1] == 2
    assert claw("create", "laptop")[1] == 0, "the name is free again"
    written = b"".join(
        (record.key or b"") + (record.value or b"") + repr(record.headers).encode()
        for record in read_topics(log_settings, [KEYS])
    )
    for key in (first, second, third):
        assert key["key"].encode() not in written
        assert key["key"][-43:].encode() not in written


@pytest.mark.kafka
def test_what_is_no_key_is_refused_in_words(claw: Run, log_settings: LogSettings) -> None:
    """Before anything is written."""
    for words in (
        ("create", "x", "--expires-in", "soon"),
        ("create", "x", "--alias", "tiny"),
        ("create", "x", "--sampling", "temperature=hot"),
        ("create", "a\x00b"),
        ("create", "x", "--scope", ""),
        ("create", "x", "--role", "admiral"),
        ("revoke", "nobody"),
        ("revoke", "0" * 12),
        ("rotate", "nobody"),
    ):
        assert claw(*words)[1] == 2, words
    assert list(read_topics(log_settings, [KEYS])) == []


def test_a_key_whose_end_has_no_date_is_listed() -> None:
    """0.1.0 made such keys; one of them must not keep all others from being seen."""
    key = KeyRecorded(envelope=facts.envelope(), digest="0" * 64, name="a", role="agent", expires_us=2**62)
    assert row(key, at_us=0)["expires"].startswith("9999-12-31")


def test_the_table_shows_no_whole_hash() -> None:
    """Name, role, twelve characters, end, scope, state."""
    shown = {"name": "a", "role": "agent", "hash": "0" * 12, "expires": None, "scope": None, "state": "valid"}
    assert list(as_text([shown]))[1].split() == ["a", "agent", "0" * 12, "-", "-", "valid"]
