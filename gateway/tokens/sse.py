"""Server-sent events as bytes, cut into events. It does not matter where the network cut them, be
it inside a character."""

import re

LINE_END = rb"(?>\r\n|\n|\r)"
EVENT_END = re.compile(LINE_END + LINE_END)
LINES = re.compile(LINE_END)


class Splitter:
    """Pieces of a byte stream in, whole events out, each with its blank line.

    Each byte is looked at a few times at most, in however many pieces an event comes.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._end = b""
        """The last bytes of these: a blank line may have begun there."""

    @property
    def is_empty(self) -> bool:
        """The received bytes ended in a blank line."""
        return not self._pieces

    @property
    def rest(self) -> bytes:
        """Returns the bytes after the last blank line."""
        return b"".join(self._pieces)

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes."""
        self._pieces.append(piece)
        near = self._end + piece
        self._end = near[-3:]
        if b"\n\n" not in near and b"\r" not in near:
            return []
        data = self.rest
        events, rest = _cut(data) if b"\r" in data else _cut_plain(data)
        self._pieces = [rest] if rest else []
        self._end = rest[-3:]
        return events


def _cut_plain(data: bytes) -> tuple[list[bytes], bytes]:
    *events, rest = data.split(b"\n\n")
    return [event + b"\n\n" for event in events], rest


def _cut(data: bytes) -> tuple[list[bytes], bytes]:
    """With whatever line ends."""
    events, start = [], 0
    for end in EVENT_END.finditer(data):
        events.append(data[start : end.end()])
        start = end.end()
    return events, data[start:]


def data_of(event: bytes) -> bytes:
    """The event's data: its `data:` lines, joined by newlines."""
    if event.startswith(b"data: ") and b"\n" not in event[:-2] and b"\r" not in event:
        return event[6:-2]
    lines = [line[5:].removeprefix(b" ") for line in LINES.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)
