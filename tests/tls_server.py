"""A server of TLS and nothing else: whom a client lets itself be served by, and with which certificate."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def listening(context: ssl.SSLContext) -> Iterator[int]:
    """A server that shakes hands, sends one byte and ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):  # closed: the test is over
                while True:
                    taken, _ = listener.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(taken, server_side=True) as secured:
                        secured.sendall(b".")

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
