"""TCP ports of this machine, and whether a Kafka broker answers on one. No Kafka client: one request by hand."""

import contextlib
import itertools
import os
import random
import socket
import struct
import time
from collections.abc import Callable

BROKER_NAMES = ("CLAW_LOG_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS")
"""The variables that name a broker, as for every room: our own counts first."""
METADATA, VERSION, CORRELATION = 3, 1, 7
OURS = range(15_000, 32_000)
"""Below where the kernels of most machines begin to give ports to connections (32768)."""
TRY_S = 2.0
PAUSE_S = 0.05


def broker_variable() -> str | None:
    """Returns which of `BROKER_NAMES` names a broker; None: the environment names none."""
    return next((name for name in BROKER_NAMES if os.environ.get(name)), None)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment (loopback), of those that the kernel gives no connection by itself."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        begin = random.SystemRandom().randrange(len(OURS))
        for port in (*OURS[begin:], *OURS[:begin]):
            if len(ports) == count:
                break
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
        return ports


def is_free(port: int) -> bool:
    """Returns whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does: TIME_WAIT does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def split_servers(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs. Raises ValueError for anything else."""
    pairs = [server.strip().rpartition(":") for server in bootstrap.split(",") if server.strip()]
    if not pairs or not all(host and port.isdigit() for host, _, port in pairs):
        raise ValueError(f"not a list of host:port: {bootstrap!r}")
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def kafka_answers(host: str, port: int, timeout_s: float = TRY_S) -> bool:
    """Returns whether a Kafka broker answers a metadata request there and knows at least one broker that is up."""
    body = struct.pack(">hhih", METADATA, VERSION, CORRELATION, -1) + struct.pack(">i", 0)  # no client id, no topics
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            reply = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(reply) < 12:
        return False
    _size, correlation, brokers = struct.unpack(">iii", reply)
    return bool(correlation == CORRELATION and brokers > 0)


def accepts(host: str, port: int, timeout_s: float = TRY_S) -> bool:
    """Returns whether anything listens there: all that can be learnt of a broker that wants TLS or a password."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True


def any_answers(
    servers: list[tuple[str, int]], timeout_s: float, probe: Callable[[str, int, float], bool] = kafka_answers
) -> bool:
    """Returns whether a broker answers within `timeout_s` in all; they are tried in turn until then."""
    deadline = time.monotonic() + timeout_s
    for host, port in itertools.cycle(servers):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        if probe(host, port, min(TRY_S, remaining_s)):
            return True
        time.sleep(PAUSE_S)
    return False
