"""The folder of a secured stack: made whole or refused, and spoken by whatever is started from there."""

import errno
import multiprocessing
import os
import ssl
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from cryptography import x509

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.local.kafka.config import server_properties
from claw_r1.claw.tls.authority import Authority
from claw_r1.claw.tls.tls_dir import TlsDir, door_url, secured_stack
from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.eventlog.settings import LogSettings
from tests.patience import PATIENCE_S
from tests.small_disk import run_on_small_disk

PROCESSES = multiprocessing.get_context("forkserver")


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


def trusted() -> set[str]:
    """The names of the authorities that OpenSSL's clients read."""
    known = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]).get_ca_certs()
    return {str(each["subject"]) for each in known}


def names_in(tls: TlsDir) -> set[str]:
    return {str(each["subject"]) for each in ssl.create_default_context(cafile=tls.authority).get_ca_certs()}


@pytest.mark.parametrize("gone", [("ca.pem", "server.pem", "claw.password", "trusted.pem"), (), ("others.pem",)])
def test_a_shell_that_names_our_bundle_trusts_an_authority_that_came_later(
    gone: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE=DIR/trusted.pem, as docs/security.md says, and then a folder that was emptied, or files of an own authority: the bundle
    stayed as it was, or missing, and each client refused our doors. Whom a company trusts stays; () and others.pem: files put there."""
    company = TlsDir(tmp_path / "company").prepared()
    company.authority.write_text(company.authority.read_text().rstrip())  # a file may end without a new line
    monkeypatch.setenv("SSL_CERT_FILE", str(company.authority))
    tls = secured_stack(tmp_path / "tls")
    assert tls is not None
    assert trusted() == names_in(company) | names_in(tls)
    for name in gone:
        (tls.path / name).unlink()
    if "ca.pem" not in gone:
        own = TlsDir(tmp_path / "own").prepared()
        for new, old in ((own.authority, tls.authority), (own.server, tls.server)):
            old.write_text(new.read_text())
    for _ in range(2):
        assert secured_stack() == tls
        assert trusted() >= names_in(company) | names_in(tls)


def test_a_shell_that_names_a_bundle_of_an_empty_folder_trusts_what_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left there that says whom it trusted: it is the system's authorities, and ours."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "trusted.pem"))
    tls = secured_stack(tmp_path / "tls")
    assert tls is not None
    assert trusted() >= names_in(tls)


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


def test_a_password_outlives_the_certificates(tmp_path: Path) -> None:
    """Kafka knows no other one: to renew certificates is to remove both, and start."""
    tls = TlsDir(tmp_path).prepared()
    password, former = tls.password.read_text(), tls.authority.read_text()
    tls.authority.unlink()
    tls.server.unlink()
    assert TlsDir(tmp_path).prepared().password.read_text() == password
    assert tls.authority.read_text() != former
    assert tls.subject() == "CN=localhost"


def test_a_folder_of_which_a_file_is_missing_is_refused(tmp_path: Path) -> None:
    TlsDir(tmp_path).prepared().password.unlink()
    with pytest.raises(CannotRun, match=r"claw\.password is missing"):
        TlsDir(tmp_path).prepared()


def _prepare_each(folders: list[Path], start: Barrier) -> None:
    for folder in folders:
        start.wait(PATIENCE_S)
        TlsDir(folder).prepared()


def test_two_that_start_at_once_get_one_folder(tmp_path: Path) -> None:
    """`claw broker` and `claw up` with a new one: files of both stood side by side, and no client trusted the server."""
    folders = [tmp_path / str(number) for number in range(12)]
    start = PROCESSES.Barrier(2)
    both = [PROCESSES.Process(target=_prepare_each, args=(folders, start)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(2 * PATIENCE_S)
    assert [process.exitcode for process in both] == [0, 0]
    for tls in map(TlsDir, folders):
        server, authority = (x509.load_pem_x509_certificate(file.read_bytes()) for file in (tls.server, tls.authority))
        server.verify_directly_issued_by(authority)


FULL = """
import sys
from pathlib import Path
from claw_r1.claw.tls.tls_dir import TlsDir
folder, ballast = Path(sys.argv[1]) / "tls", Path(sys.argv[1]) / "ballast"
for pages in range(4):  # each file takes one
    ballast.write_bytes(bytes((16 - pages) << 12))
    try:
        TlsDir(folder).prepared()
        print("made")
    except OSError as error:
        print(error.errno, [file.name for file in folder.iterdir() if file.name != ".lock"])
"""


def test_a_full_disk_leaves_nothing_that_the_next_start_would_take(tmp_path: Path) -> None:
    """An empty ca.pem was taken for an authority at every later start; here the disk is full at each of the files in turn."""
    assert run_on_small_disk(FULL, tmp_path, "64k") == [f"{errno.ENOSPC} []"] * 3 + ["made"]


def test_an_empty_file_is_a_missing_one(tmp_path: Path) -> None:
    """As a start on a full disk left it, before those removed what they had made."""
    TlsDir(tmp_path).prepared().authority.write_text("")
    with pytest.raises(CannotRun, match=r"ca\.pem is missing beside its neighbours, or empty"):
        TlsDir(tmp_path).prepared()
