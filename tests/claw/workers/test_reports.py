"""Which versions are read for the reports of workers."""

from collections.abc import Iterator

import pytest

from claw_r1.claw.workers import reports
from claw_r1.claw.workers.reports import NEWEST_FIRST, known_workers, newest_versions
from claw_r1.eventlog.kafka.reader import stream_ranges
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from tests.claw.workers.reported import publish, report, version

pytestmark = pytest.mark.kafka


def test_no_version_is_read_twice(log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is not there is looked for in all of the topic, in ranges that meet; for a dead worker nothing is read."""
    publish(log_settings, *(version(number, "other") for number in range(NEWEST_FIRST + 9)))
    offsets = list[tuple[str, int, int]]()

    def counted(settings: LogSettings, ranges: dict[Place, tuple[int, int]]) -> Iterator[Record]:
        for record in stream_ranges(settings, ranges):
            offsets.append((record.topic, record.partition, record.offset))
            yield record

    monkeypatch.setattr(reports, "stream_ranges", counted)
    publish(log_settings, report("gone", run_id="absent", state="dead"))
    assert ([each.newest for each in known_workers(log_settings)], offsets) == ([None], [])
    assert newest_versions(log_settings, [("m", "absent"), ("m", "other")]) == {("m", "other"): NEWEST_FIRST + 8}
    assert (len(offsets), len(set(offsets))) == (NEWEST_FIRST + 9, NEWEST_FIRST + 9)
