"""Who was idle, and what is to be added to."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from claw_r1.claw.workers.idle import engine_time, idle_shares, of_last_run, trainer_time
from claw_r1.schemas.events import BatchTrained, WorkerReported
from tests.claw.events import trained
from tests.claw.workers.reported import START_US, report


def batches(wait_s: float, train_s: float, count: int = 5) -> list[BatchTrained]:
    """One each 10 s."""
    made = [trained(number, 0.5, wait_s=wait_s, train_s=train_s) for number in range(count)]
    return [
        replace(each, envelope=replace(each.envelope, occurred_at_us=START_US + each.sequence * 10_000_000))
        for each in made
    ]


def reports(worker_id: str, serving: float, idle: float, paused: float = 0.0) -> Iterator[WorkerReported]:
    """One each 10 s, whose seconds grow by these shares of it."""
    for number in range(5):
        seconds = {"serving": serving, "idle": idle, "paused": paused}
        grown = {name: 100 + 10 * number * share for name, share in seconds.items()}
        yield report(worker_id, at_s=10 * number, seconds=grown)


def test_shares_are_of_all_engines_and_of_the_trainers_own_time() -> None:
    """What stood on the clocks before the first report does not count, nor what was waited for before the first batch."""
    shares = idle_shares([*reports("a", 0.2, 0.7, 0.1), *reports("b", 0.4, 0.5, 0.1)], batches(1.0, 8.0))
    assert shares["engines"] == pytest.approx({"serving": 0.3, "idle": 0.6, "paused": 0.1})
    assert shares["trainer"] == pytest.approx({"training": 0.8, "waiting": 0.1, "other": 0.1})
    assert shares["advice"] == (
        "engines were idle 60% of the time, the trainer waited 10%: the trainer is what to add to"
    )


@pytest.mark.parametrize(
    ("idle", "wait_s", "says"),
    [
        (0.1, 6.0, "workers are what to add"),
        (0.4, 4.0, "wait for each other in turn"),
        (0.1, 1.0, "both are busy"),
    ],
)
def test_the_advice_follows_who_waits(idle: float, wait_s: float, says: str) -> None:
    """The other way round, in turn, and nobody."""
    advice = idle_shares(list(reports("a", 1 - idle, idle)), batches(wait_s, 9.0 - wait_s))["advice"]
    assert advice is not None
    assert says in advice


def test_an_engine_that_was_started_again_does_not_count_backwards() -> None:
    """Its clocks began at 0; what two reports of one engine say is counted."""
    own = list(reports("a", 1.0, 0.0))
    again = [report("a", at_s=50 + each, seconds={"serving": 0.0, "idle": each}) for each in (1.0, 11.0)]
    assert engine_time([*own, *again]) == pytest.approx({"serving": 0.8, "idle": 0.2, "paused": 0.0})


def test_reports_outside_the_batches_do_not_count() -> None:
    """Before a run and after it engines are idle, whatever is added."""
    late = [report("a", at_s=100 + each, seconds={"serving": 140.0, "idle": each}) for each in (200.0, 900.0)]
    assert idle_shares([*reports("a", 1.0, 0.0), *late], batches(1, 8))["engines"] == {
        "serving": 1.0,
        "idle": 0.0,
        "paused": 0.0,
    }


def test_too_little_is_no_share() -> None:
    """One report, one batch, or a worker that does not say."""
    assert engine_time([report(seconds={"idle": 5.0})]) is None
    assert engine_time([report(), report()]) is None
    assert trainer_time(batches(1, 8, count=1)) is None
    assert idle_shares([], []) == {"engines": None, "trainer": None, "advice": None}


def test_the_last_run_is_that_which_trained_last() -> None:
    """Its partition may be read before that of a run that is over."""
    new = [replace(each, run_id="new") for each in batches(1, 8)]
    assert of_last_run([*new, *batches(1, 8, count=2)]) == new
    assert of_last_run([*batches(1, 8, count=2), *new]) == new
    assert of_last_run([]) == []
