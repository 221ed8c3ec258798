"""The settings by which clients of Kafka prove who they are and whom they
trust. Secrets stand in files, which are read again when needed.

Nothing here knows a client: `kafka/librdkafka.py` and `streams/faust_/` say it to theirs, `claw broker tool` to Kafka's tools.
"""

import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import structlog
from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.eventlog.errors import AccessRefused
from claw_r1.runtime.tls.pem import PemFiles, TlsRefused, pem_files
from claw_r1.schemas.api_keys import names_loopback

log = structlog.get_logger()

TOKEN_TIMEOUT_S = 20.0
TLS_TIMEOUT_S, ALERT_S = 3.0, 0.5
LOOK_S = 5.0
"""How often a client that stays looks whether its files have changed."""
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class LogSecurity(BaseSettings):
    """The part of the log's settings that secures its wire."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """The protocol of the brokers' listener. SSL: TLS; SASL: clients say
    who they are, by the mechanism."""
    security_ca_file: Path | None = None
    """PEM file of the authorities that may have signed a broker's
    certificate. Not set: those that the system trusts."""
    security_certificate_file: Path | None = None
    """PEM file of this client's certificate with its chain, for brokers
    that ask for one."""
    security_key_file: Path | None = None
    """PEM file of the certificate's key. Not set: it stands in the
    certificate's file."""
    security_mechanism: Mechanism = "SCRAM-SHA-512"
    """The SASL mechanism by which the client says who it is."""
    security_username: str = ""
    """The name of this client's user, for PLAIN and SCRAM."""
    security_password_file: Path | None = None
    """File of the user's password; a new one is used from the next
    connection on."""
    security_token_file: Path | None = None
    """File of the token of OAUTHBEARER; read for each connection."""
    security_token_command: str = ""
    """Program that prints the token of OAUTHBEARER, with its arguments;
    called for each connection, without a shell."""
    security_cleartext: bool = False
    """Let a password or token go to a broker beyond this machine without
    TLS, where the network can read it."""

    @model_validator(mode="after")
    def _secured_whole(self) -> "LogSecurity":
        """Refuses half of a configuration, which would leave a wire open that its owner believes closed."""
        named = {name for name in LogSecurity.model_fields if name.startswith("security_") and getattr(self, name)}
        tls, sasl = self.security_protocol.endswith("SSL"), self.security_protocol.startswith("SASL")
        files = named & {"security_ca_file", "security_certificate_file", "security_key_file"}
        users = named & {"security_username", "security_password_file"}
        tokens = named & {"security_token_file", "security_token_command"}
        if files and not tls:
            raise ValueError(f"{min(files)} needs security_protocol SSL or SASL_SSL, it is {self.security_protocol}")
        if (users or tokens) and not sasl:
            raise ValueError(f"{min(users | tokens)} needs security_protocol SASL_SSL, it is {self.security_protocol}")
        if self.security_key_file and not self.security_certificate_file:
            raise ValueError("security_key_file needs its security_certificate_file")
        if sasl and self.security_mechanism == "OAUTHBEARER" and (len(tokens) != 1 or users):
            raise ValueError("OAUTHBEARER takes either security_token_file or security_token_command, and no user")
        if sasl and self.security_mechanism != "OAUTHBEARER" and (len(users) != 2 or tokens):
            raise ValueError(f"{self.security_mechanism} takes security_username and security_password_file")
        return self

    def refuse_cleartext(self, servers: str) -> None:
        """Raises ValueError where a password or token would go to these servers for everybody to read."""
        if elsewhere(servers) and self.security_protocol == "SASL_PLAINTEXT" and not self.security_cleartext:
            raise ValueError(
                f"a password would go to {servers} without TLS, where the network can read it: "
                "take security_protocol SASL_SSL, or allow it by security_cleartext"
            )

    @property
    def secured(self) -> bool:
        """True where brokers ask who the client is, or may."""
        return self.security_protocol != "PLAINTEXT"

    def pem(self) -> PemFiles | None:
        """The files of TLS; None without. Raises AccessRefused."""
        if not self.security_protocol.endswith("SSL"):
            return None
        try:
            return pem_files(self.security_ca_file, self.security_certificate_file, self.security_key_file)
        except TlsRefused as refused:
            raise AccessRefused(str(refused)) from refused

    def tls_refusal(self, servers: str) -> str | None:
        """Says why TLS with the first of these servers fails, in OpenSSL's words; None where it does not."""
        pem, (host, _, port) = self.pem(), servers.split(",")[0].strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), TLS_TIMEOUT_S) as plain:
                if pem:
                    with pem.context().wrap_socket(plain, server_hostname=host.strip("[]")) as secured:
                        secured.settimeout(ALERT_S)
                        secured.recv(1)  # what a server thinks of our certificate comes after the handshake of TLS 1.3
        except ssl.SSLError as error:
            return f"TLS fails: {getattr(error, 'verify_message', '') or error.reason or error}"
        except OSError:
            return None
        return None

    def secret(self, timeout_s: float = TOKEN_TIMEOUT_S) -> str:
        """The password or token as it is now. Raises AccessRefused when it cannot be had, or is empty."""
        path = self.security_password_file or self.security_token_file
        try:
            secret = (path.read_text() if path else self._printed(timeout_s)).strip()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", None) or "").strip()
            raise AccessRefused(f"no password or token for Kafka: {detail or error}") from error
        if not secret:
            raise AccessRefused(f"no password or token for Kafka: {path or self.security_token_command} gives none")
        return secret

    def _printed(self, timeout_s: float) -> str:
        argv = shlex.split(self.security_token_command)
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=timeout_s).stdout


class SecretsWatch:
    """Tells a client that stays when the files that it was made of have
    changed."""

    def __init__(self, security: LogSecurity, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds. Raises AccessRefused."""
        self._security, self._clock = security, clock
        self._used = self._now()
        self._next_s = clock() + LOOK_S

    def changed(self) -> bool:
        """Once for each change; looks at the files every `LOOK_S`. What cannot be read is no change, and is said."""
        if not self._security.secured or self._clock() < self._next_s:
            return False
        self._next_s = self._clock() + LOOK_S
        try:
            now = self._now()
        except AccessRefused as refused:
            log.error("log_secret_unreadable", error=str(refused), what_now="what was read before stays")
            return False
        changed, self._used = now != self._used, now
        return changed

    def _now(self) -> tuple[str, ...]:
        pem = self._security.pem()
        return (*(pem.texts() if pem else ()), self._security.secret() if self._security.security_username else "")


def elsewhere(servers: str) -> list[str]:
    """Returns those of `host:port,…` that are not on this machine."""
    return [server for each in servers.split(",") if not names_loopback(server := each.strip())]
