"""`claw workers list` on a real log."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from claw_r1.claw.workers.reports import NEWEST_FIRST, known_workers
from claw_r1.claw.workers.show import as_text
from claw_r1.consumers.runs.workers import worker_row
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from tests.claw.events import ENVELOPE
from tests.claw.workers.reported import PROBED, publish, report, version

pytestmark = pytest.mark.kafka
WAY = "trainer; not by gloo: a member of the group is gone"


def test_the_list_says_what_each_worker_serves(
    claw: Callable[..., int], log_settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions behind are of the worker's own run, however long ago that was; who does not report is silent."""
    old = replace(ENVELOPE, occurred_at_us=now_us() - 1_800_000_000)
    publish(
        log_settings,
        *(version(number, "r") for number in range(3)),
        *(version(number, "other") for number in range(NEWEST_FIRST + 1)),
        report(
            "a",
            run_id="r",
            version=0,
            state="behind",
            detail="3 versions",
            kv_usage=0.5,
            sync_ms=PROBED,
            weights_from=WAY,
        ),
        replace(report("b", run_id="other", version=NEWEST_FIRST), envelope=old),
        report("c", state="dead"),
    )
    assert claw("list") == 0
    a, b, c = json.loads(capsys.readouterr().out.splitlines()[-1])["workers"]
    assert (a["versions_behind"], a["state"], a["why"], a["kv_usage"], a["sync_ms"]) == (
        2,
        "behind",
        "3 versions",
        0.5,
        PROBED,
    )
    assert (b["versions_behind"], b["silent"], a["silent"], c["silent"]) == (0, True, False, False)
    assert c["versions_behind"] is None
    text = "\n".join(as_text([worker_row(worker) for worker in known_workers(log_settings)]))
    assert a["weights_from"] == WAY
    for words in ("behind", "50%", "load 20 probe 4", ", from trainer", "silent "):
        assert words in text


def test_workers_of_long_ago_leave_the_list(
    claw: Callable[..., int], log_settings: LogSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who ended or fell silent more than an hour ago is counted, and shown by --all; who reports is shown however seldom."""
    old = replace(ENVELOPE, occurred_at_us=now_us() - 3_700_000_000)
    publish(
        log_settings,
        replace(report("a", state="dead"), envelope=old),
        replace(report("b"), envelope=old),
        replace(report("c", report_interval_s=3600.0), envelope=old),
        report("d", state="dead"),
    )
    for flags, ids, left_out in (((), ["c", "d"], 2), (("--all",), ["a", "b", "c", "d"], 0)):
        assert claw("list", *flags) == 0
        answer = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert ([each["worker"] for each in answer["workers"]], answer["left_out"]) == (ids, left_out)
