"""Settings that every page has."""

import getpass
from typing import ClassVar

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from claw_r1.runtime.tls.doors import DoorTls
from claw_r1.schemas.api_keys import is_loopback


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "somebody"


class PageSettings(DoorTls):
    """A page names its prefix and its port."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"host": "page"}

    host: str = "127.0.0.1"
    """Address to listen on; another than this machine's own only with --keys."""
    port: int = Field(default=8200, ge=0, le=65_535)
    """Port to listen on; 0: any free one."""
    public_url: str = Field(default="", pattern=r"^(https?://[^/]+)?$")
    """URL by which browsers reach the page where a proxy stands before it, https://host: writes may come from there, and cookies go
    there by https only. No header of a proxy is believed."""
    keys: bool = False
    """People sign in with a key of `claw keys` (role annotator or operator; a reader looks and writes nothing).
    Without, whoever sits at this machine is let in."""
    who: str = Field(default_factory=_login_name, min_length=1, max_length=128)
    """Name under which people speak who did not give another one; with --keys, the key's name counts."""
    session_hours: float = Field(default=12.0, gt=0)
    """The time that a sign-in lasts without a request."""
    body_bytes_max: int = Field(default=2 << 20, ge=1024)
    """Bytes of one request's body."""

    @model_validator(mode="after")
    def _keys_beyond_loopback(self) -> "PageSettings":
        if not self.keys and not is_loopback(self.host):
            raise ValueError(f"{self.host} is reachable by others: give --keys, or --host 127.0.0.1")
        return self
