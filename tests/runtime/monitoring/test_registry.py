"""What each process tells of its disks and its certificate."""

import datetime
import shutil
from pathlib import Path

import pytest

from claw_r1.claw.tls.authority import Authority
from claw_r1.runtime.monitoring.registry import process_registry, watch_certificate, watch_disk


def test_the_room_on_a_disk_is_that_of_the_next_directory_that_there_is(tmp_path: Path) -> None:
    """A directory that nobody made yet lies on the disk of the one above it."""
    registry = process_registry()
    watch_disk(registry, spool=tmp_path / "not" / "yet", here=tmp_path)
    sizes = [registry.get_sample_value("claw_disk_size_bytes", {"directory": name}) for name in ("spool", "here")]
    assert sizes == [shutil.disk_usage(tmp_path).total] * 2
    assert registry.get_sample_value("claw_disk_free_bytes", {"directory": "spool"})


def test_the_end_of_a_certificate_is_that_of_its_file_now(tmp_path: Path) -> None:
    """A renewed one counts at once; a file that holds none, or is not there, is the alert's business; without TLS there is nothing."""
    registry, authority, file = process_registry(), Authority.new(), tmp_path / "server.pem"
    watch_certificate(registry, None)
    assert registry.get_sample_value("claw_certificate_end_timestamp_seconds") is None
    watch_certificate(registry, file)
    ends: list[float | None] = []
    for days in (1, 100):
        file.write_text(authority.issue("localhost", lasts=datetime.timedelta(days=days)))
        ends.append(registry.get_sample_value("claw_certificate_end_timestamp_seconds"))
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[1] - ends[0] == pytest.approx(99 * 86400, abs=3600)
    file.write_text("none")
    assert registry.get_sample_value("claw_certificate_end_timestamp_seconds") == 0
    file.unlink()
    assert registry.get_sample_value("claw_certificate_end_timestamp_seconds") == 0
