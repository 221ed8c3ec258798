"""The gateway as a process: the log, its followers and the HTTP server, started and stopped in order.

Invariant: after SIGTERM or SIGINT no new connection is taken, calls in flight end (within `shutdown_grace_s`), the log
or the spool has every event, and the process exits 0. When a thread ends by an error, the process exits 1, to be started again.
"""

import gc
import resource
import socket
from collections.abc import Iterator
from functools import partial

import structlog
import uvicorn

from claw_r1.datapool.view.request_bodies import backwards
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.admin import begin_offsets, check_broker, check_catalogue, end_offsets
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import read_range
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.eventlog.spool.spool import Spool
from claw_r1.gateway.app import GatewayDependencies, create_gateway
from claw_r1.gateway.capture.durable_log import DurableLog
from claw_r1.gateway.control.admission import AdmissionView
from claw_r1.gateway.control.task_orders import Unfolded
from claw_r1.gateway.followers import Followers
from claw_r1.gateway.http.auth import KeyRing
from claw_r1.gateway.http.connection import connections_to
from claw_r1.gateway.http.server import GracefulServer
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.engines import Engine, EngineTable
from claw_r1.runtime.monitoring.registry import watch_certificate, watch_disk
from claw_r1.runtime.monitoring.server import monitored
from claw_r1.runtime.monitoring.tracing import traced
from claw_r1.schemas.api_keys import is_loopback, parse_key
from claw_r1.schemas.http import family_of, url_host
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS

BACKLOG = 4096
KEEP_ALIVE_S = 75  # above what clients keep idle connections for, so that they, not we, close first
LOG_PROBE_TIMEOUT_S = 2.0
EARLIER_AT_ONCE = 200
"""Records of earlier calls that are read together, on the way back."""
FILES_BESIDES = 256
"""Open files besides connections of clients and to engines."""
GARBAGE_MAX = 20_000
"""Objects made and not yet freed before cycles are looked for."""
log = structlog.get_logger()


class PortInUse(Exception):
    """The address cannot be bound."""


class SpoolUnusable(Exception):
    """The spool's directory cannot be used."""


def serve(settings: GatewaySettings, log_settings: LogSettings, listen_fd: int | None = None) -> int:
    """Run until asked to stop; returns the exit code. `listen_fd`: a listening socket that a parent holds.

    Raises PortInUse, MetricsPortTaken, SpoolUnusable or claw_r1.eventlog.errors.LogError at the start.
    """
    listener = bind(settings.host, settings.port) if listen_fd is None else socket.socket(fileno=listen_fd)
    broker = check_broker(log_settings, log_settings.connect_timeout_s)
    check_catalogue(log_settings, "gateway")
    kafka, metrics = KafkaLog(log_settings), Metrics()
    spool = open_spool(settings, f"{broker.cluster_id}.{log_settings.prefix}")
    watch_disk(metrics.registry, spool=settings.spool_dir)
    watch_certificate(metrics.registry, settings.tls_certificate_file)

    def stop(_: BaseException) -> None:  # a thread of the process has ended by an error
        server.should_exit = True

    durable_log = DurableLog(
        kafka.producer(), spool, settings, metrics, log_answers=partial(_broker_answers, log_settings), on_error=stop
    )
    fixed = [Engine(url=url) for url in settings.upstreams]
    engines = EngineTable(settings.worker_ttl_s, fixed, log_away=lambda: durable_log.unheard)
    admission, keys = AdmissionView(), KeyRing([parse_key(entry) for entry in settings.api_keys])
    followers = Followers(kafka, engines, keys, admission)
    orders = admission.orders
    orders.read_unfolded = Unfolded(kafka, orders, followers.catch_up, lambda: spool.empty).read
    dependencies = GatewayDependencies(
        settings=settings,
        sink=durable_log,
        engines=engines,
        admission=admission,
        metrics=metrics,
        keys=keys,
        catalogue=log_settings.catalogue(),
        not_ready=lambda: followers.not_ready() or durable_log.not_ready(),
        read_calls=partial(_read_calls, log_settings),
    )
    server = _server(dependencies)
    try:
        watched = monitored(metrics.registry, settings.host, settings.metrics_port, dependencies.not_ready)
        with traced("gateway"), watched:  # before the pool is read, which may take longer than a probe of life waits
            followers.start(stop)
            durable_log.start(engines.is_quiet)
            _announce(settings, listener)
            _settle_memory()
            raise_files_max(settings)
            server.run(sockets=[listener])
        return 1 if followers.broken or durable_log.broken else 0
    finally:
        followers.stop()
        durable_log.close()


def _announce(settings: GatewaySettings, listener: socket.socket) -> None:
    """Says where the door is, and to whom it is more open than most people want."""
    if not settings.api_keys:
        log.warning("gateway_without_api_keys", who="everybody on this machine may call models and read /metrics")
    if not (settings.tls_certificate_file or settings.public_url or is_loopback(settings.host)):
        log.warning("gateway_in_clear", what="keys and conversations go over the network readable")
    host, port = listener.getsockname()[:2]
    log.info("gateway_listening", url=f"{settings.scheme}://{url_host(host)}:{port}", instance=settings.instance)


def _settle_memory() -> None:
    """Look for garbage rarely: what is in memory now stays, and a look after every call was a tenth of its cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_MAX, 10, 10)


def raise_files_max(settings: GatewaySettings) -> None:
    """Allow as many open files as this user may have; warn where that is less than connections and calls may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = settings.connections_max + settings.calls_max + FILES_BESIDES
    if hard != resource.RLIM_INFINITY and hard < needed:
        log.warning("few_open_files", limit=hard, needed=needed, hint="raise the hard limit of RLIMIT_NOFILE")


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; others of this user may listen on the port of a `shared` one, too. Raises PortInUse."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG, family=family_of(host), reuse_port=shared)
    except OSError as error:
        raise PortInUse(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error


def open_spool(settings: GatewaySettings, log_name: str) -> Spool:
    """The spool of this process. One root per log, so that nothing drains into another one. Raises SpoolUnusable."""
    root = settings.spool_dir / log_name
    try:
        return Spool(root, settings.instance, bytes_max=settings.spool_bytes_max)
    except OSError as error:
        raise SpoolUnusable(f"cannot spool in {root}: {error.strerror}; choose another --spool-dir") from error


def _broker_answers(log_settings: LogSettings) -> bool:
    try:
        check_broker(log_settings, LOG_PROBE_TIMEOUT_S)
    except LogError:
        return False
    return True


def _read_calls(log_settings: LogSettings, group_id: str) -> Iterator[Record]:
    """Reads earlier calls (`claw_r1.gateway.capture.previous_responses.ReadCalls`)."""
    name, partition = log_settings.catalogue().name(CALLS), partition_of(group_key(group_id), log_settings.partitions)
    begin = begin_offsets(log_settings, [CALLS])[name, partition]
    end = Position(name, partition, end_offsets(log_settings, [CALLS])[name, partition])
    return backwards(partial(read_range, log_settings, CALLS), begin, end, EARLIER_AT_ONCE)


def _server(dependencies: GatewayDependencies) -> GracefulServer:
    gateway = create_gateway(dependencies)
    config = uvicorn.Config(
        gateway.app,
        loop="uvloop",
        http=connections_to(gateway.door),
        ws="none",  # an upgraded connection would go around keys, limits and the access log
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,  # for what the drain has left
        ssl_context_factory=dependencies.settings.context_factory,
    )
    return GracefulServer(config, dependencies.settings.shutdown_linger_s, dependencies.settings.shutdown_grace_s)
