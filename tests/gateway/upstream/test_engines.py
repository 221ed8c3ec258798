"""Which workers take calls, by their reports."""

from claw_r1.gateway.upstream.engines import EngineTable
from tests.gateway.house import report


def test_workers_live_as_long_as_they_report() -> None:
    """A worker takes traffic while ready or updating and its newest record is younger than the ttl."""
    now_ms = 100_000.0
    table = EngineTable(10.0, clock_ms=lambda: now_ms)
    table.apply(report("http://a", "a", "ready", timestamp_ms=95_000))
    table.apply(report("http://b/", "b", "updating", timestamp_ms=90_000))
    table.apply(report("http://c", "c", "ready", timestamp_ms=89_999))
    for number, state in enumerate(("starting", "draining", "dead", "unknown")):
        table.apply(report("http://d", f"d{number}", state, timestamp_ms=99_999))  # type: ignore[arg-type]  # a wrong or a partial argument is the case
    assert {server.url for server in table.live()} == {"http://a", "http://b"}
    assert table.knows("tiny")
    assert not table.knows("other")
    now_ms = 101_000.0
    assert {server.url for server in table.live()} == {"http://a"}


def test_an_outage_of_the_log_takes_no_engine_away() -> None:
    """However late it is noticed: while the log is away, time stands still at the last report of any worker."""
    away = False
    table = EngineTable(10.0, clock_ms=lambda: 200_000.0, log_away=lambda: away)
    table.apply(report("http://a", "a", "ready", timestamp_ms=100_000))
    table.apply(report("http://dead", "b", "ready", timestamp_ms=80_000))
    assert table.live() == []
    away = True
    assert {server.url for server in table.live()} == {"http://a"}


def test_a_table_is_quiet_when_nobody_reports_any_more() -> None:
    """One worker that does is enough; where none ever has, nothing is missing."""
    table = EngineTable(10.0, clock_ms=lambda: 100_000.0)
    assert not table.is_quiet()
    table.apply(report("http://a", "a", "ready", timestamp_ms=80_000))
    assert table.is_quiet()
    table.apply(report("http://b", "b", "ready", timestamp_ms=95_000))
    assert not table.is_quiet()


def test_worker_table_keeps_the_newest_report() -> None:
    """A later report replaces an earlier one, a tombstone removes it, and a broken record changes nothing."""
    table = EngineTable(10.0, clock_ms=lambda: 0.0)
    table.apply(report("http://a", "a", "ready", timestamp_ms=0))
    table.apply(report("http://a2", "a", "ready", timestamp_ms=0))
    broken = report("http://a3", "a", "ready", timestamp_ms=0)
    table.apply(type(broken)("t", 0, 0, 0, b"a", b"garbage"))
    assert [server.url for server in table.live()] == ["http://a2"]
    table.apply(type(broken)("t", 0, 0, 0, b"a", None))
    assert table.live() == []
