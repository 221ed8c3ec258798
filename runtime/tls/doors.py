"""The TLS of what listens: a certificate for a door of ours."""

import ssl
from collections.abc import Callable
from pathlib import Path

from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.runtime.tls.pem import TlsRefused, pem_files


class DoorTls(BaseSettings):
    """The part of a door's settings that secures it."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    tls_certificate_file: Path | None = None
    """PEM file of the door's certificate with its chain: it then takes https only. A renewed one counts from the next
    connection on. Not set: http."""
    tls_key_file: Path | None = None
    """PEM file of the certificate's key. Not set: it stands in the certificate's file."""

    @model_validator(mode="after")
    def _usable(self) -> "DoorTls":
        if self.tls_key_file and not self.tls_certificate_file:
            raise ValueError("tls_key_file needs its tls_certificate_file")
        try:
            self.door_context()
        except TlsRefused as refused:
            raise ValueError(str(refused)) from refused
        return self

    @property
    def scheme(self) -> str:
        """The scheme of the door's URL."""
        return "https" if self.tls_certificate_file else "http"

    def door_context(self) -> ssl.SSLContext | None:
        """The context of a server; None for http. Raises TlsRefused."""
        if self.tls_certificate_file is None:
            return None
        return pem_files(None, self.tls_certificate_file, self.tls_key_file).context(server=True)

    @property
    def context_factory(self) -> Callable[..., ssl.SSLContext] | None:
        """`uvicorn.Config`'s `ssl_context_factory` for this door."""
        context = self.door_context()
        return None if context is None else lambda *_: context
