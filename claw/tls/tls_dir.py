"""The certificates and the password of a secured stack on one machine:
made where they are missing, kept, and yours to replace.

A company's own authority takes the place of this one outside one machine: the files have the same names and meanings.
"""

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from claw_r1.claw.errors import CannotRun
from claw_r1.runtime.files import write_secret

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

    def prepared(self) -> "TlsDir":
        """Itself, with all its files. Raises CannotRun where some are
        there and others not."""
        files = (self.authority, self.server, self.password)
        missing = [file for file in files if not file.exists()]
        if missing and len(missing) < len(files):
            raise CannotRun(f"{missing[0]} is missing beside its neighbours: put it there, or name an empty folder")
        if missing:
            from claw_r1.claw.tls.authority import Authority  # an extra's library, which only this needs

            self.path.mkdir(parents=True, exist_ok=True)
            authority = Authority.new()
            write_secret(self.password, secrets.token_urlsafe(24))
            write_secret(self.server, authority.issue("localhost", names=("localhost", socket.gethostname())))
            self.authority.write_text(authority.pem)
        return self

    def environment(self) -> dict[str, str]:
        """The variables by which every process of the stack, and a client
        beside it, finds and proves itself."""
        return {
            "CLAW_LOG_SECURITY_PROTOCOL": "SASL_SSL",
            "CLAW_LOG_SECURITY_CA_FILE": str(self.authority.resolve()),
            "CLAW_LOG_SECURITY_USERNAME": USER,
            "CLAW_LOG_SECURITY_PASSWORD_FILE": str(self.password.resolve()),
        }
