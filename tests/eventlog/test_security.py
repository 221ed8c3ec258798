"""The settings of a secured wire: half of one is refused, secrets are read when needed, and what changes is noticed once."""

import base64
import json
import sys
import time
from pathlib import Path

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from claw_r1.eventlog.errors import AccessRefused
from claw_r1.eventlog.grants import ROLES, Grant, beyond, grants
from claw_r1.eventlog.kafka.librdkafka import admin_config, token_of
from claw_r1.eventlog.security import SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import TOPICS, Catalogue

FILE = Path("/nowhere")
USER = {"security_username": "u", "security_password_file": FILE}
TOKEN = {"security_protocol": "SASL_SSL", "security_mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"security_ca_file": FILE}, "security_ca_file needs security_protocol SSL"),
        (USER, "needs security_protocol SASL_SSL"),
        ({"security_protocol": "SSL", "security_key_file": FILE}, "security_certificate_file"),
        ({"security_protocol": "SASL_SSL"}, "security_username and security_password_file"),
        ({"security_protocol": "SASL_SSL", "security_username": "u"}, "security_password_file"),
        ({"security_protocol": "SASL_SSL", **USER, "security_token_file": FILE}, "SCRAM-SHA-512 takes"),
        ({**TOKEN}, "either security_token_file or security_token_command"),
        ({**TOKEN, "security_token_file": FILE, "security_token_command": "cat t"}, "either"),
        ({"security_protocol": "SASL_PLAINTEXT", **USER, "bootstrap_servers": "127.0.0.1:1,kafka:1"}, "without TLS"),
    ],
)
def test_half_a_configuration_is_refused(fields: dict[str, str | Path], words: str) -> None:
    """A wire that its owner believes closed must not be open."""
    with pytest.raises(ValidationError, match=words):
        LogSettings(**fields)


@pytest.mark.parametrize("servers", ["127.0.0.1:9092", "localhost:1, [::1]:2"])
def test_on_this_machine_a_password_may_go_in_clear(servers: str) -> None:
    assert LogSettings(security_protocol="SASL_PLAINTEXT", **USER, bootstrap_servers=servers).secured


def test_elsewhere_only_when_somebody_says_so() -> None:
    allowed = {"security_protocol": "SASL_PLAINTEXT", "security_cleartext": True, "bootstrap_servers": "kafka:9092"}
    assert LogSettings(**USER, **allowed).secured


def test_a_password_is_read_when_it_is_needed_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "password"
    log = LogSettings(security_protocol="SASL_PLAINTEXT", security_username="u", security_password_file=path)
    with pytest.raises(AccessRefused, match="No such file"):
        admin_config(log)
    for password in ("first-7f", "second-7f"):
        path.write_text(f"{password}\n")
        assert admin_config(log)["sasl.password"] == password
        assert password not in repr(log)


def test_a_token_says_when_it_ends_or_is_asked_for_again_soon(tmp_path: Path) -> None:
    """A program prints it; its standard error and its exit code are in the line when it fails."""
    end = 1_900_000_000
    claims = base64.urlsafe_b64encode(json.dumps({"exp": end}).encode()).decode().rstrip("=")
    path = tmp_path / "token"
    log = LogSettings(**TOKEN, security_token_command=f"cat {path}")
    path.write_text(f"h.{claims}.s\n")
    assert token_of(log) == (f"h.{claims}.s", end)
    path.write_text("opaque")
    token, ends = token_of(log)
    assert (token, ends > time.time()) == ("opaque", True)
    path.unlink()
    with pytest.raises(AccessRefused, match="No such file"):
        token_of(log)
    with pytest.raises(AccessRefused, match="/no/program"):
        token_of(log.model_copy(update={"security_token_command": "/no/program"}))
    hanging = f"{sys.executable} -c 'import time; time.sleep(60)'"
    with pytest.raises(AccessRefused, match="timed out"):
        log.model_copy(update={"security_token_command": hanging}).secret(timeout_s=0.2)


def test_a_change_is_told_once_and_an_emptied_password_is_none(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("a")
    log = LogSettings(security_protocol="SASL_PLAINTEXT", security_username="u", security_password_file=path)
    times = iter(range(0, 1000, 10))
    watch = SecretsWatch(log, clock=lambda: float(next(times)))
    assert not watch.changed()
    path.write_text("b")
    assert [watch.changed() for _ in range(3)] == [True, False, False]
    for spoil in (lambda: path.write_text("\n"), path.unlink):
        spoil()
        with capture_logs() as said:
            assert not watch.changed()
        assert [line["event"] for line in said] == ["log_secret_unreadable"]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_writes_what_the_catalogue_says_and_nothing_else(role: str) -> None:
    """An operator writes all that a rebuild and a copy do. No two installations share a grant."""
    here, there = Catalogue(prefix="here"), Catalogue(prefix="there")
    given = grants(here, role)
    written = {grant.name for grant in given if grant.operation == "write" and grant.resource == "topic"}
    copied = {topic.name for topic in TOPICS if role == "operator"} - {"rollout.workers"}
    wanted = {here.name(topic) for topic in TOPICS if ROLES[role] & set(topic.writers) or topic.name in copied}
    assert written - {"here.dead-letters"} == wanted - {"here.dead-letters"}
    assert not set(given) & set(grants(there, role))
    assert all(grant.name.startswith("here.") for grant in given)


@pytest.mark.parametrize("stem", ["streams-pool-0", "rewards.rule.exact.g2-0", "copy.claw64"])
def test_an_operator_opens_the_transactions_of_its_commands(stem: str) -> None:
    """As streams in a rebuild, as a scorer in a backfill, and as a copy."""
    here = Catalogue(prefix="here")
    assert not beyond([Grant("transactional_id", f"here.{stem}", "write")], grants(here, "operator"))


def test_every_writer_of_the_catalogue_has_a_role() -> None:
    known = frozenset().union(*ROLES.values())
    assert {writer for topic in TOPICS for writer in topic.writers} - known == {"any reader"}
    assert {reader.partition(" (")[0] for topic in TOPICS for reader in topic.readers} <= known
