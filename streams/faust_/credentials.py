"""The access to Kafka as Faust's client takes it: a token for each
connection, all else as it is when the worker begins."""

import asyncio

from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]  # no stubs
from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials

from claw_r1.eventlog.settings import LogSettings


class _Token(AbstractTokenProvider):
    """The token of OAUTHBEARER."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings

    async def token(self) -> str:
        return await asyncio.to_thread(self._settings.secret)


def credentials(settings: LogSettings) -> Credentials | None:
    """None where the wire is open. Raises AccessRefused."""
    pem = settings.pem()
    context = pem.context() if pem else None
    if not settings.security_protocol.startswith("SASL"):
        return SSLCredentials(context) if context else None
    if settings.security_mechanism == "OAUTHBEARER":
        return OAuthCredentials(oauth_cb=_Token(settings), ssl_context=context)
    return SASLCredentials(
        username=settings.security_username,
        password=settings.secret(),
        ssl_context=context,
        mechanism=settings.security_mechanism,
    )
