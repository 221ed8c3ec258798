"""The certificates and the password of a secured stack on one machine:
made where they are missing, kept, and yours to replace.

A company's own authority takes the place of this one outside one machine: the files have the same names and meanings.
"""

import os
import secrets
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.eventlog.locks import exclusive
from claw_r1.runtime.files import write_atomically, write_secret

VARIABLE = "CLAW_TLS_DIR"
USER = "claw"
"""The user of everything in such a stack, whom the broker lets do all."""


@dataclass(frozen=True)
class TlsDir:
    """The folder of `claw up --tls-dir`."""

    path: Path

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.path / "ca.pem"

    @property
    def server(self) -> Path:
        """Certificate and key of whatever listens on this machine: the
        broker, the gateway, the pages, the trainer's offers."""
        return self.path / "server.pem"

    @property
    def password(self) -> Path:
        return self.path / f"{USER}.password"

    def subject(self) -> str:
        """The distinguished name in the server's certificate, as Kafka writes it. Raises CannotRun."""
        from cryptography import x509  # an extra's library, which only a secured stack needs

        try:
            return x509.load_pem_x509_certificate(self.server.read_bytes()).subject.rfc4514_string()
        except ValueError as error:
            raise CannotRun(f"{self.server} holds no certificate: {error}") from error

    def prepared(self) -> "TlsDir":
        """Itself, with all its files, of which two that ask at once find the same. Raises CannotRun where some are there and others not,
        and OSError: then nothing of them is there."""
        if self._missing():
            self.path.mkdir(parents=True, exist_ok=True)
            with exclusive(self.path / ".lock"):
                missing = self._missing()  # none, where another process made them while this one waited
                if missing[:2] not in ([], [self.authority, self.server]):
                    raise CannotRun(
                        f"{missing[0]} is missing beside its neighbours, or empty: put it there, or name an empty folder"
                    )
                if missing:
                    self._make(missing)
        return self

    def _missing(self) -> list[Path]:
        """The files that are not there, or empty, as a full disk leaves them."""
        files = (self.authority, self.server, self.password)
        return [file for file in files if not file.exists() or not file.stat().st_size]

    def _make(self, missing: list[Path]) -> None:
        """A password that is there stays: a broker may have been begun with it."""
        from claw_r1.claw.tls.authority import Authority  # an extra's library, which only this needs

        authority = Authority.new()
        partials = {file: file.with_name(f".{file.name}.partial") for file in missing}
        try:
            if self.password in partials:
                write_secret(partials[self.password], secrets.token_urlsafe(24))
            write_secret(partials[self.server], authority.issue("localhost", names=("localhost", socket.gethostname())))
            partials[self.authority].write_text(authority.pem)
            for file, partial in partials.items():
                partial.replace(file)
        except OSError:
            for file in (*partials.values(), *partials):
                file.unlink(missing_ok=True)
            raise

    def doors(self) -> dict[str, str]:
        """The variables by which what listens in the stack takes https, and what calls it trusts that."""
        server, authority = str(self.server.resolve()), str(self.authority.resolve())
        return {
            "CLAW_GATEWAY_TLS_CERTIFICATE_FILE": server,
            "CLAW_DASHBOARD_TLS_CERTIFICATE_FILE": server,
            "CLAW_WEIGHTS_TLS_CERTIFICATE_FILE": server,
            "CLAW_WEIGHTS_TLS_CA_FILE": authority,
        }

    def kafka(self) -> dict[str, str]:
        """The variables by which clients of the stack's own broker find and prove themselves."""
        return {
            "CLAW_LOG_SECURITY_PROTOCOL": "SASL_SSL",
            "CLAW_LOG_SECURITY_CA_FILE": str(self.authority.resolve()),
            "CLAW_LOG_SECURITY_USERNAME": USER,
            "CLAW_LOG_SECURITY_PASSWORD_FILE": str(self.password.resolve()),
        }


def secured_stack(folder: Path | None = None) -> TlsDir | None:
    """The folder of this stack, or of `VARIABLE`, with all its files; None where there is none. From now on this process and all
    that it starts speak as it says, but for what the environment says itself: CLAW_LOG_SECURITY_PROTOCOL is of another broker.

    Raises CannotRun.
    """
    if folder is not None:
        os.environ[VARIABLE] = str(folder.resolve())
    if not os.environ.get(VARIABLE):
        return None
    tls = TlsDir(Path(os.environ[VARIABLE])).prepared()
    ours = tls.doors() | ({} if "CLAW_LOG_SECURITY_PROTOCOL" in os.environ else tls.kafka())
    for name, value in ours.items():
        os.environ.setdefault(name, value)
    _trust(tls)
    return tls


def _trust(tls: TlsDir) -> None:
    """Lets every client that asks OpenSSL, as Python's do, trust the stack's doors beside whom it trusts already. Where it reads our
    own bundle, that is whom the bundle was begun with: its authority may have changed since."""
    bundle = tls.path.resolve() / "trusted.pem"
    others = bundle.with_name("others.pem")
    default = ssl.get_default_verify_paths()
    named = Path(os.environ.get("SSL_CERT_FILE") or default.cafile or "")
    ours = named.resolve() == bundle
    # `default.cafile` is what SSL_CERT_FILE names, where that is there. A bundle without others.pem is of an older version.
    sources = (others, bundle, Path(default.openssl_cafile)) if ours else (named,)
    earlier = next((source.read_text() for source in sources if source.is_file()), "")
    if not ours:
        _replace(others, earlier)
    own = tls.authority.read_text()
    _replace(bundle, earlier if own in earlier else f"{earlier.rstrip()}\n{own}".lstrip())
    os.environ["SSL_CERT_FILE"] = str(bundle)


def _replace(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text() != text:  # the folder may be one that only its owner can write to
        write_atomically(path, text)


def door_url(port: int) -> str:
    """The address of a door of this stack."""
    return f"{'https' if os.environ.get(VARIABLE) else 'http'}://127.0.0.1:{port}"
