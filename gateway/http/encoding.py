"""Decodes compressed bodies piece by piece, up to a limit, so that a small body cannot become
a huge one in memory."""

import zlib

from claw_r1.gateway.errors import HeaderList, InvalidRequest, UnknownEncoding

GZIP = ("gzip", "x-gzip")
WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS


class BodyDecoder:
    """Decodes one body of one encoding, as the client calls it."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._gzip = zlib.decompressobj(WITH_GZIP_HEADER)
        self._has_body = False

    @property
    def ended(self) -> bool:
        """The body is complete; so it is of a request that has no body at all."""
        return self._gzip.eof or not self._has_body

    def decode(self, piece: bytes, bytes_max: int) -> bytes:
        """Decodes a piece of body, up to so many bytes. Raises UnknownEncoding, InvalidRequest."""
        self._has_body = True
        if self._encoding not in GZIP:
            raise UnknownEncoding(f"a body is sent as it is, or with content-encoding gzip, not {self._encoding[:40]}")
        try:
            decoded = self._gzip.decompress(piece, bytes_max)
        except zlib.error as broken:
            raise InvalidRequest("the body is not gzip", code="bad_encoding") from broken
        if self._gzip.unused_data:
            raise InvalidRequest("the body goes on after the end of its gzip", code="bad_encoding")
        return decoded


def decoder_of(headers: HeaderList) -> BodyDecoder | None:
    """For a body that its headers call compressed; None for any other."""
    named = b",".join([value for name, value in headers if name == b"content-encoding"]).decode("latin-1")
    encoding = named.strip().lower()
    return BodyDecoder(encoding) if encoding not in ("", "identity") else None
