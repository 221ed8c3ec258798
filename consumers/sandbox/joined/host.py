"""Runs in the code's sandbox: imports the code and does what the tests ask of it, over descriptor 3.

Nothing here is trusted: the code shares this interpreter and may do all of it differently. It can give other answers, no more.
"""

import importlib
import socket
import sys
from contextlib import suppress
from typing import Any

from consumers.sandbox.joined import wire

MUTABLE = (list, dict, set, bytearray)


class Host:
    """The objects that the tests hold a reference to."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def reference(self, value: Any) -> list[Any]:
        """Keeps an object alive under a number."""
        self._objects.append(value)
        return ["object", len(self._objects) - 1, type(value).__name__]

    def read(self, data: Any) -> Any:
        """A value of the tests; their references are our objects."""
        return wire.read(data, lambda parts: self._objects[parts[1]])

    def written(self, value: Any) -> Any:
        """A value for the tests."""
        return wire.written(value, self.reference)

    def answer(self, request: list[Any]) -> Any:
        """`get NUMBER NAME`, `set NUMBER NAME VALUE`, `names NUMBER`, `call NUMBER ARGUMENTS NAMED`; what a call changed goes back."""
        verb, number, *rest = request
        target = self._objects[number]
        if verb == "get":
            return [self.written(getattr(target, rest[0])), []]
        if verb == "set":
            setattr(target, rest[0], self.read(rest[1]))
            return [None, []]
        if verb == "names":
            return [[name for name in dir(target) if not name.startswith("_")], []]
        arguments = [self.read(argument) for argument in rest[0]]
        named = {name: self.read(argument) for name, argument in rest[1].items()}
        value = self.written(target(*arguments, **named))
        return [value, [self.written(one) if isinstance(one, MUTABLE) else None for one in arguments]]


def main(module: str) -> None:
    """Serves the module until the tests are over."""
    peer = socket.socket(fileno=3)
    host = Host()
    try:
        wire.send(peer, ["ready", host.reference(importlib.import_module(module))])
    except BaseException as error:  # noqa: BLE001 - of the code
        wire.send(peer, ["broken", type(error).__name__, str(error)[:500]])
        return
    while True:
        request = wire.receive(peer)
        try:
            wire.send(peer, ["value", *host.answer(request)])
        except BaseException as error:  # noqa: BLE001 - of the code; the tests raise it again
            wire.send(peer, ["error", type(error).__name__, str(error)[:2000]])


if __name__ == "__main__":
    with suppress(EOFError, ConnectionError):
        main(sys.argv[1])
