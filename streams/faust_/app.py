"""Faust as a group member that reads bytes, and nothing else of Faust: no tables, no topics of its own, no web."""

import os
import tempfile
from pathlib import Path
from typing import Any

import faust

from claw_r1.eventlog.records import Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES
from claw_r1.streams.faust_ import transport
from claw_r1.streams.faust_.assignor import CopartitionedAssignor
from claw_r1.streams.faust_.credentials import credentials
from claw_r1.streams.ownership import group_name
from claw_r1.streams.settings import StreamsSettings

ANSWER_S = 10.0
"""After this time a silent broker with open connections
counts as lost. A join is answered when all members have joined,
which a dead member delays by its session: that comes on top."""


def faust_app(settings: StreamsSettings, log_settings: LogSettings) -> faust.App:
    """The app of one worker. Call in the event loop that runs it."""
    servers = ";".join(f"kafka://{server}" for server in log_settings.bootstrap_servers.split(","))
    app = faust.App(
        group_name(log_settings.catalogue()),
        broker=servers,
        broker_credentials=credentials(log_settings),
        datadir=str(Path(tempfile.gettempdir()) / f"claw-streams-{os.getuid()}"),  # stays empty without tables
        topic_partitions=log_settings.partitions,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.group_instance_id,
        consumer_max_fetch_size=LARGEST_RECORD_BYTES,
        broker_session_timeout=settings.session_timeout_s,
        broker_request_timeout=settings.session_timeout_s + ANSWER_S,
        broker_heartbeat_interval=settings.heartbeat_interval_s,
        broker_commit_interval=1.0,
        Monitor=transport.Unmeasured,
        cython_optimizations=True,  # take what stands in the queue without waiting for it
        PartitionAssignor=CopartitionedAssignor,
        table_standby_replicas=1,  # there are no tables: this makes Faust ask the assignor above
    )
    transport.use(app, settings.fetch_interval_s)
    return app


def record_of(message: Any) -> Record:  # faust is untyped
    """Faust's message as a record of the log."""
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=int((message.timestamp or 0) * 1000),
        key=message.key,
        value=message.value,
        headers=tuple((name, value or b"") for name, value in pairs),
    )
