"""TLS from PEM files that are read again when they change, because
certificates are renewed while programs run.

Invariant: files that cannot be used never replace those that could: what was read last stays, and a line says why.
"""

import os
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import structlog

log = structlog.get_logger()

OTHERS_MAY_READ = 0o077
Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsRefused(Exception):
    """The PEM files cannot be used. The text is one line that names them."""


class _Loaded(NamedTuple):
    """The contents of the files: as texts, which are empty where there is
    no file, and as contexts."""

    texts: tuple[str, str, str]
    client: ssl.SSLContext
    server: ssl.SSLContext


class PemFiles:
    """The files of one end of a connection: whom it trusts, who it is,
    and its key. Thread-safe."""

    def __init__(self, authorities: Path | None, certificate: Path | None, key: Path | None) -> None:
        """authorities: None trusts whom the system trusts. key: None
        where it stands in the certificate's file.

        Raises TlsRefused.
        """
        self._paths = (authorities, certificate, (key or certificate) if certificate else None)
        self._stamp = self._stamped()
        self._loaded = self._load()
        if (secret := self._paths[2]) and secret.stat().st_mode & OTHERS_MAY_READ:
            log.warning("key_file_open_to_others", file=str(secret), what_to_do=f"chmod 600 {secret}")

    def texts(self) -> tuple[str, str, str]:
        """Authorities, certificate and key as PEM, as the files hold them now or did when they could be used last."""
        return self._newest().texts

    def context(self, *, server: bool = False) -> ssl.SSLContext:
        """A context each of whose connections is made with what the files
        hold by then.

        A server that names authorities takes no client without a certificate of theirs.
        """
        return _LivingContext(self, server)

    def _newest(self) -> _Loaded:
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._loaded = self._load()
                log.info("tls_files_read_again", files=self._names())
            except TlsRefused as refused:
                log.error("tls_files_refused", error=str(refused), what_now="what was read before stays")
        return self._loaded

    def _load(self) -> _Loaded:
        authorities, certificate, key = self._paths
        try:
            read = [path.read_text() if path else "" for path in self._paths]
            client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authorities)
            server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authorities)
            server.verify_mode = ssl.CERT_REQUIRED if authorities else ssl.CERT_NONE
            for context in (client, server):
                if certificate:
                    context.load_cert_chain(certificate, key, password="")  # else OpenSSL asks the terminal for one
        except (OSError, ValueError) as error:  # OSError: ssl.SSLError, too
            raise TlsRefused(
                f"{self._names()}: {getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error}"
            ) from error
        return _Loaded((read[0], read[1], read[2]), client, server)

    def _stamped(self) -> Stamp:
        return tuple(_identity(path) for path in self._paths if path)

    def _names(self) -> str:
        return " and ".join(dict.fromkeys(str(path) for path in self._paths if path))


class _LivingContext(ssl.SSLContext):
    """A context that has every connection made by the newest one:
    asyncio, uvloop and sockets ask it for each."""

    def __new__(cls, _files: PemFiles, server: bool) -> "_LivingContext":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, files: PemFiles, server: bool) -> None:
        self._files, self._server = files, server

    def wrap_bio(self, *ends: Any, **options: Any) -> ssl.SSLObject:
        """The TLS of a connection of an event loop."""
        return self._newest().wrap_bio(*ends, **options)

    def wrap_socket(self, *ends: Any, **options: Any) -> ssl.SSLSocket:
        """The TLS of a connection of a thread."""
        return self._newest().wrap_socket(*ends, **options)

    def _newest(self) -> ssl.SSLContext:
        loaded = self._files._newest()
        return loaded.server if self._server else loaded.client


@lru_cache(maxsize=16)
def pem_files(authorities: Path | None = None, certificate: Path | None = None, key: Path | None = None) -> PemFiles:
    """The files of these paths; all who name the same ones in this process read them together. Raises TlsRefused."""
    return PemFiles(authorities, certificate, key)


def weights_files() -> PemFiles | None:
    """The files by which a trainer and its workers prove themselves to each other, of the variables `CLAW_WEIGHTS_TLS_CA_FILE`,
    `…_CERTIFICATE_FILE` and `…_KEY_FILE`; None without any. Raises TlsRefused."""
    names = (os.environ.get(f"CLAW_WEIGHTS_TLS_{name}") for name in ("CA_FILE", "CERTIFICATE_FILE", "KEY_FILE"))
    authorities, certificate, key = (Path(name) if name else None for name in names)
    if key and not certificate:
        raise TlsRefused(
            "CLAW_WEIGHTS_TLS_KEY_FILE is the key of a certificate: set CLAW_WEIGHTS_TLS_CERTIFICATE_FILE, too"
        )
    return pem_files(authorities, certificate, key) if authorities or certificate else None


def _identity(path: Path) -> tuple[int, int, int] | None:
    """None for a file that is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
