"""TLS from files: what is there is used, what changes is used next, and what cannot be used never replaces what could."""

import socket
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from claw_r1.claw.tls.authority import Authority
from claw_r1.runtime.files import write_secret
from claw_r1.runtime.tls.pem import PemFiles, TlsRefused, weights_files
from tests.tls_server import listening


def certificate_seen(port: int, context: ssl.SSLContext) -> int:
    """The serial number of the server's certificate. Raises ssl.SSLError."""
    plain = socket.create_connection(("127.0.0.1", port), 5)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
        assert secured.recv(1) == b"."
        return int(str((secured.getpeercert() or {})["serialNumber"]), 16)


@pytest.fixture
def authority() -> Authority:
    return Authority.new()


@pytest.fixture
def trusted(authority: Authority, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_text(authority.pem)
    return path


def written(path: Path, pem: str) -> Path:
    write_secret(path, pem)
    return path


def test_a_renewed_certificate_is_shown_to_the_next_connection(
    authority: Authority, trusted: Path, tmp_path: Path
) -> None:
    own = written(tmp_path / "server.pem", authority.issue("s", names=("localhost",)))
    server, client = PemFiles(None, own, None).context(server=True), PemFiles(trusted, None, None).context()
    with listening(server) as port:
        first = certificate_seen(port, client)
        assert certificate_seen(port, client) == first
        written(own, authority.issue("s", names=("localhost",)))
        assert certificate_seen(port, client) != first


def test_files_that_were_emptied_leave_the_old_ones(authority: Authority, trusted: Path, tmp_path: Path) -> None:
    """Half of a key pair, an empty list of authorities, a file that is gone: said once, and everybody goes on."""
    own = written(tmp_path / "server.pem", authority.issue("s", names=("localhost",)))
    served, trusting = PemFiles(None, own, None), PemFiles(trusted, None, None)
    before = trusting.texts()
    with listening(served.context(server=True)) as port:
        first = certificate_seen(port, trusting.context())
        for spoil in (lambda: own.write_text(authority.pem), lambda: trusted.write_text(""), own.unlink):
            spoil()
            with capture_logs() as said:
                assert certificate_seen(port, trusting.context()) == first
                assert certificate_seen(port, trusting.context()) == first
            assert [line["event"] for line in said] == ["tls_files_refused"]
    assert trusting.texts() == before


def test_clients_without_a_certificate_stay_out_where_one_is_asked_for(
    authority: Authority, trusted: Path, tmp_path: Path
) -> None:
    own = written(tmp_path / "server.pem", authority.issue("s", names=("localhost",)))
    stranger = written(tmp_path / "stranger.pem", Authority.new().issue("c"))
    known = written(tmp_path / "client.pem", authority.issue("c"))
    with listening(PemFiles(trusted, own, None).context(server=True)) as port:
        assert certificate_seen(port, PemFiles(trusted, known, None).context())
        for certificate in (None, stranger):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                certificate_seen(port, PemFiles(trusted, certificate, None).context())


def test_several_authorities_in_one_file_are_all_trusted(authority: Authority, trusted: Path, tmp_path: Path) -> None:
    own = written(tmp_path / "server.pem", authority.issue("s", names=("localhost",)))
    trusted.write_text(Authority.new().pem + Authority.new().pem + authority.pem)
    with listening(PemFiles(None, own, None).context(server=True)) as port:
        assert certificate_seen(port, PemFiles(trusted, None, None).context())


@pytest.mark.parametrize("content", ["", "no PEM", "certificate alone"])
def test_what_cannot_be_used_at_the_beginning_is_one_line(authority: Authority, tmp_path: Path, content: str) -> None:
    own = written(tmp_path / "own.pem", authority.pem if content == "certificate alone" else content)
    for authorities, certificate in ((own, None), (None, own)):
        if certificate or content != "certificate alone":
            with pytest.raises(TlsRefused, match=r"own\.pem") as refused:
                PemFiles(authorities, certificate, None)
            assert "\n" not in str(refused.value)
    with pytest.raises(TlsRefused, match="No such file"):
        PemFiles(tmp_path / "nowhere.pem", None, None)


def test_a_key_that_others_can_read_is_warned_of(authority: Authority, tmp_path: Path) -> None:
    own = written(tmp_path / "own.pem", authority.issue("c"))
    with capture_logs() as quiet:
        PemFiles(None, own, None)
    own.chmod(0o644)
    with capture_logs() as said:
        PemFiles(None, own, None)
    assert (quiet, [line["event"] for line in said]) == ([], ["key_file_open_to_others"])


def test_a_key_of_no_certificate_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its owner believes that weights pass by TLS, and they would pass in clear."""
    monkeypatch.setenv("CLAW_WEIGHTS_TLS_KEY_FILE", str(tmp_path / "own.key"))
    with pytest.raises(TlsRefused, match="CLAW_WEIGHTS_TLS_CERTIFICATE_FILE"):
        weights_files()
