"""Server-sent events as bytes, cut into events. It does not matter where the network cut them, be it inside a character."""

import re

LINE_END = rb"(?>\r\n|\n|\r)"
EVENT_END = re.compile(LINE_END + LINE_END)
LINES = re.compile(LINE_END)


class Splitter:
    """Pieces of a byte stream in, whole events out, each with its blank line."""

    def __init__(self) -> None:
        self.rest = b""
        """What came after the last blank line."""

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes."""
        data = self.rest + piece if self.rest else piece
        if b"\r" in data:
            return self._feed_any_line_end(data)
        *events, self.rest = data.split(b"\n\n")
        return [event + b"\n\n" for event in events]

    def _feed_any_line_end(self, data: bytes) -> list[bytes]:
        events, start = [], 0
        for end in EVENT_END.finditer(data):
            events.append(data[start : end.end()])
            start = end.end()
        self.rest = data[start:]
        return events


def data_of(event: bytes) -> bytes:
    """The event's data: its `data:` lines, joined by newlines."""
    if event.startswith(b"data: ") and b"\n" not in event[:-2] and b"\r" not in event:
        return event[6:-2]
    lines = [line[5:].removeprefix(b" ") for line in LINES.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)
