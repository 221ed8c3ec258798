"""The folder of a secured stack: made whole or refused, and spoken by whatever is started from there."""

import os
import ssl
from pathlib import Path

import pytest

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.kafka.config import server_properties
from claw_r1.claw.tls.authority import Authority
from claw_r1.claw.tls.tls_dir import TlsDir, door_url, secured_stack
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.eventlog.settings import LogSettings


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stack adds to the environment goes with the test."""
    before = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "CLAW_TLS_DIR")}
    for name in [name for name in os.environ if name.startswith("CLAW_")]:
        monkeypatch.delenv(name)
    for name in (*TlsDir(Path()).kafka(), *TlsDir(Path()).doors(), *before):
        monkeypatch.setenv(name, before.get(name) or "")
        monkeypatch.delenv(name)


def test_without_a_folder_everything_is_as_it_was() -> None:
    assert secured_stack() is None
    assert door_url(80) == "http://127.0.0.1:80"
    assert not LogSettings().secured


def test_a_folder_secures_the_log_and_the_doors(tmp_path: Path) -> None:
    """Once made it stays: a second start finds the same files, which only their owner can read."""
    tls = secured_stack(tmp_path / "tls")
    assert tls is not None
    kept = {path: path.read_text() for path in (tls.authority, tls.server, tls.password)}
    assert [path.stat().st_mode & 0o077 for path in (tls.server, tls.password)] == [0, 0]
    assert (door_url(80), DashboardSettings().scheme) == ("https://127.0.0.1:80", "https")
    assert LogSettings().secret() == tls.password.read_text()
    assert secured_stack() is not None
    assert {path: path.read_text() for path in kept} == kept


def test_whom_a_company_trusts_stays_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its authorities stand beside ours in what OpenSSL's clients read, however often a stack begins."""
    theirs = TlsDir(tmp_path / "theirs").prepared().authority
    monkeypatch.setenv("SSL_CERT_FILE", str(theirs))
    for _ in range(2):
        secured_stack(tmp_path / "tls")
        known = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]).get_ca_certs()
        assert len(known) == 2


def test_another_brokers_access_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAW_LOG_SECURITY_PROTOCOL", "PLAINTEXT")
    secured_stack(tmp_path / "tls")
    assert not LogSettings().secured
    assert DashboardSettings().scheme == "https"


def test_the_node_is_known_by_its_certificates_name(tmp_path: Path) -> None:
    """Whoever signed it: the node must be let in by its own access lists."""
    tls = TlsDir(tmp_path).prepared()
    assert tls.subject() == "CN=localhost"
    tls.server.write_text(Authority.new().issue("kafka.example", names=("localhost",)))
    assert "User:CN=kafka.example" in server_properties(tmp_path, 1, 2, tls)
    tls.server.write_text("no certificate")
    with pytest.raises(CannotRun, match=r"server\.pem"):
        tls.subject()


def test_a_folder_of_which_a_file_is_missing_is_refused(tmp_path: Path) -> None:
    TlsDir(tmp_path).prepared().password.unlink()
    with pytest.raises(CannotRun, match=r"claw\.password is missing"):
        TlsDir(tmp_path).prepared()
