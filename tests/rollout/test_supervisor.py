"""Laws of the supervisor, with an engine that is a script."""

import asyncio
import itertools
from pathlib import Path

import pytest

from claw_r1.schemas.events import WorkerReported
from claw_r1.weights.sources import SECRET_VARIABLE
from claw_r1.weights.transfer_server import TransferServer
from tests.patience import PATIENCE_S, until_async
from tests.rollout.scripted import Trainer, scripted_worker
from tests.rollout.scripted_vllm import ScriptedVllm


def is_at(version: int, state: str = "ready") -> "object":
    return lambda report: (report.state, report.version) == (state, version)


async def test_a_load_longer_than_the_health_deadline_is_no_hang(tmp_path: Path) -> None:
    """The first load and a later one go on until a question has passed its deadline; the engine is never restarted for it."""
    engine, trainer = ScriptedVllm(), Trainer()

    async def outlasts_a_question() -> None:
        before = engine.given_up
        await until_async(lambda: engine.given_up > before)

    engine.load = outlasts_a_question
    trainer.publish(0)
    async with scripted_worker(engine, trainer, tmp_path, health_timeout_s=3.0) as worker:
        await worker.until(is_at(0))
        assert "updating" not in {report.state for report in worker.reports}, "it took calls before its first weights"
        trainer.publish(1)
        await worker.until(is_at(1))
        assert worker.server.starts == 1


async def test_an_engine_that_hangs_is_restarted(tmp_path: Path) -> None:
    """Beside a load, an engine that answers nothing for the deadline is given up."""
    engine, trainer = ScriptedVllm(), Trainer()
    async with scripted_worker(engine, trainer, tmp_path, health_timeout_s=1.0) as worker:
        await worker.until(lambda report: report.state == "ready")
        before, engine.hangs = worker.server.starts, True
        await worker.until(lambda report: report.state == "starting" and worker.server.starts > before)
        await worker.until(lambda report: report.state == "ready")


async def test_a_start_is_left_alone_as_long_as_it_moves(tmp_path: Path) -> None:
    """An engine that is busy becomes healthy long after the time without which nothing may move; one that does nothing is
    started again, and the report names the setting."""
    engine, trainer = ScriptedVllm(), Trainer()
    engine.is_healthy = False
    async with scripted_worker(engine, trainer, tmp_path, start_quiet_s=0.3) as worker:
        await worker.until(lambda _: worker.server.looks >= 4)  # half a second apart
        assert worker.server.starts == 1
        worker.server.moves = False
        report = await worker.until(lambda report: report.detail)
        assert "--start-quiet-s" in (report.detail or "")
        await worker.until(lambda _: worker.server.starts >= 2)
        engine.is_healthy = True
        await worker.until(lambda report: report.state == "ready")


async def test_a_slow_worker_loads_the_newest_and_always_gets_on(tmp_path: Path) -> None:
    """Ten versions come while it loads one, and one whenever it fetches: it skips most, loads in order, and gets on."""
    engine, versions = ScriptedVllm(), iter(range(1, 60))
    loop = asyncio.get_running_loop()

    def publish(count: int) -> None:
        for version in itertools.islice(versions, count):
            trainer.publish(version)

    async def while_ten_come() -> None:
        publish(10)

    engine.load = while_ten_come
    trainer = Trainer(on_sent=lambda _: loop.call_soon_threadsafe(publish, 1))
    trainer.publish(0)
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(is_at(59))
    loaded = [int(label.removeprefix("run/")) for label in engine.labels]
    assert loaded == sorted(set(loaded))
    assert 4 <= len(loaded) <= 15, f"it stood still, or loaded nearly all: {loaded}"


async def test_updating_is_said_only_while_the_engine_is_paused(tmp_path: Path) -> None:
    """Between two loads the worker says `ready`, although the next version is already there to be fetched."""
    engine, trainer = ScriptedVllm(load_s=0.05), Trainer()
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(lambda report: report.state == "ready")
        trainer.publish(0)
        await worker.until(is_at(0))
        trainer.publish(1, offer_url="http://127.0.0.1:9/weights")
        trainer.publish(2, offer_url="http://127.0.0.1:9/weights")
        report = await worker.until(lambda report: report.detail)
        assert report.state == "ready"
        assert not engine.is_paused


async def test_a_worker_beyond_the_bound_is_behind_until_it_has_the_new_version(tmp_path: Path) -> None:
    """Within `staleness_max` it stays ready; beyond it is `behind` and says why; with the new weights it is ready again."""
    engine, trainer = ScriptedVllm(), Trainer()
    nobody = "http://127.0.0.1:9/weights"
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        trainer.publish(0, staleness_max=1)
        await worker.until(is_at(0))
        trainer.publish(1, staleness_max=1, offer_url=nobody)
        report = await worker.until(lambda report: report.detail)
        assert report.state == "ready"
        trainer.publish(2, staleness_max=1, offer_url=nobody)
        report = await worker.until(lambda report: report.state == "behind" and "trainer" in (report.detail or ""))
        assert (report.detail or "").count("2 versions behind run/2") == 1
        trainer.publish(3, staleness_max=1)
        report = await worker.until(is_at(3))
        assert report.detail is None


async def test_a_version_with_which_engines_end_is_given_up(tmp_path: Path) -> None:
    """Two engines end with it; the third serves the version before, from its copy, without a trainer; a newer one is loaded."""
    engine, trainer = ScriptedVllm(), Trainer()
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        trainer.publish(0, staleness_max=1)
        await worker.until(is_at(0))
        engine.unloadable = {trainer.publish(1, staleness_max=1).digest}
        await worker.until(
            lambda _: worker.server.starts >= 2
        )  # maybe the third one already: reports come now and then
        trainer.transfer.close()
        report = await worker.until(lambda report: report.state == "ready" and "given up" in (report.detail or ""))
        assert report.weights_from == "this host's memory"
        assert (report.version, worker.server.starts, engine.labels) == (0, 3, ["run/0", "run/0"])
        assert "run/1 is given up, 2 engines ended while they loaded it: /update_weights: 500" in (report.detail or "")
        trainer.transfer = TransferServer()
        trainer.publish(2, staleness_max=1)
        report = await worker.until(is_at(2))
        assert (report.detail, worker.server.starts) == (None, 3)
        assert len(list((tmp_path / "copies").glob("b3:*"))) == 1


@pytest.mark.parametrize("fault", ["a version is given up", "the trainer is gone"])
async def test_a_version_of_this_host_that_has_no_name_any_more_is_loaded_again(tmp_path: Path, fault: str) -> None:
    """A trainer of the same host lets its bytes go with the next version, or with its end: the worker holds them still."""
    copies = tmp_path / "copies"
    copies.mkdir(mode=0o700)
    engine, trainer = ScriptedVllm(), Trainer(directory=copies)
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        trainer.publish(0)
        assert (await worker.until(is_at(0))).weights_from == "this host's memory"
        trainer.transfer.settle("run", 1)
        assert not list(copies.iterdir())
        if fault == "the trainer is gone":
            trainer.transfer.close()
            engine.hangs = True
        else:
            engine.unloadable = {trainer.publish(1).digest}
        await worker.until(lambda report: report.state == "starting")
        report = await worker.until(lambda report: report.state == "ready" and len(engine.labels) == 2)
        assert (report.version, report.weights_from) == (0, "this host's memory")
        assert engine.labels == ["run/0", "run/0"]


async def test_a_worker_without_a_version_that_can_be_loaded_takes_no_calls(tmp_path: Path) -> None:
    """The first one is given up: the worker is not ready with the weights of its directory, says why, and goes on."""
    engine, trainer = ScriptedVllm(), Trainer()
    engine.unloadable = {trainer.publish(0).digest}
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(lambda report: "given up" in (report.detail or ""))
        trainer.publish(1)
        await worker.until(is_at(1))
    assert {report.version for report in worker.reports if report.state == "ready"} == {1}


async def test_an_engine_killed_in_a_load_is_no_fault_of_the_version(tmp_path: Path) -> None:
    """One that ends by accident is replaced, and the version is loaded."""
    engine, trainer = ScriptedVllm(), Trainer()
    engine.unloadable = {trainer.publish(0).digest}
    async with scripted_worker(engine, trainer, tmp_path) as worker:

        async def ends_once() -> None:
            if worker.server.starts == 2:
                engine.unloadable = set()

        engine.load = ends_once
        report = await worker.until(is_at(0))
        assert report.detail is None


async def test_an_offer_that_stalls_gives_way_to_another_trainers(tmp_path: Path) -> None:
    """A stopped trainer holds a fetch for its whole deadline only as long as nobody else offers a version."""
    engine, trainer = ScriptedVllm(), Trainer()
    fetches, is_over = asyncio.Event(), asyncio.Event()

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetches.set()
        await is_over.wait()
        writer.close()

    stalls = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = stalls.sockets[0].getsockname()[1]
    too_long = {"offer_timeout_s": 2 * PATIENCE_S, "fetch_timeout_s": 2 * PATIENCE_S}
    async with scripted_worker(engine, trainer, tmp_path, **too_long) as worker:
        trainer.publish(0, offer_url=f"http://127.0.0.1:{port}/weights")
        await asyncio.wait_for(fetches.wait(), PATIENCE_S)
        trainer.publish(1)
        await worker.until(is_at(1))
        is_over.set()
    stalls.close()


async def test_another_secret_is_said_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that the trainer refuses names the variable that differs, and not its value."""
    monkeypatch.setenv(SECRET_VARIABLE, "of-the-trainer")
    engine, trainer = ScriptedVllm(), Trainer()
    monkeypatch.setenv(SECRET_VARIABLE, "of-the-worker")
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        trainer.publish(0)
        report = await worker.until(lambda report: report.detail)
        assert SECRET_VARIABLE in (report.detail or "")
        assert "of-the" not in (report.detail or "")


@pytest.mark.parametrize("how", ["signal", "wish"])
async def test_a_drain_waits_for_running_replies(tmp_path: Path, how: str) -> None:
    """By signal or by a person's wish: `draining` while a reply runs, the end when it has ended."""
    engine, trainer = ScriptedVllm(), Trainer()
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(lambda report: report.state == "ready")
        engine.in_flight = 1
        if how == "wish":
            engine.control_requests = ["drain"]
        else:
            worker.stop.drain.set()
        await worker.until(lambda report: report.state == "draining" and report.in_flight == 1)
        assert not worker.task.done()
        engine.in_flight = 0
        await asyncio.wait_for(worker.task, PATIENCE_S)
        assert worker.reports[-1].state == "dead"


async def test_a_probe_that_a_person_asks_for_is_made_between_two_loads(tmp_path: Path) -> None:
    """What it measures joins the phases of the last sync; an engine that has drifted since is taken out, and says why."""
    engine, trainer = ScriptedVllm(), Trainer()
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        trainer.publish(0)
        report = await worker.until(is_at(0))
        assert report.sync_ms["probe_gap"] == 0
        engine.score = -1.0005
        engine.control_requests = ["probe"]
        report = await worker.until(lambda report: report.sync_ms.get("probe_gap"))
        assert report.sync_ms["probe_gap"] == pytest.approx(0.0005)
        assert {"fetch", "load", "paused"} <= set(report.sync_ms)
        engine.score = -2.0
        engine.control_requests = ["probe"]
        await worker.until(lambda report: worker.server.starts == 2 and report.sync_ms.get("probe_gap") == 0)
        assert any("does not serve run/0" in (each.detail or "") for each in worker.reports if each.state == "starting")


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """Replies that run on are given up when the operator says so again."""
    engine, trainer = ScriptedVllm(), Trainer()
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(lambda report: report.state == "ready")
        engine.in_flight = 1
        worker.stop.drain.set()
        await worker.until(lambda report: report.state == "draining")
        worker.stop.now.set()
        await asyncio.wait_for(worker.task, PATIENCE_S)


async def test_a_drain_begins_after_the_load_that_runs(tmp_path: Path) -> None:
    """Replies that a load has frozen go on after it, and only then is the engine asked to end."""
    engine, trainer = ScriptedVllm(), Trainer()
    drained = asyncio.Event()
    engine.load = drained.wait
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(lambda report: report.state == "ready")
        trainer.publish(0)
        await worker.until(lambda report: report.state == "updating")
        worker.stop.drain.set()
        drained.set()
        await asyncio.wait_for(worker.task, PATIENCE_S)
        assert engine.labels == ["run/0"]
        assert not engine.is_paused


async def test_reports_carry_what_the_engine_says_of_itself(tmp_path: Path) -> None:
    """KV use, seconds by what was done, and the phases of the last sync."""
    engine, trainer = ScriptedVllm(), Trainer()
    trainer.publish(0)

    def is_whole(report: WorkerReported) -> bool:
        return report.kv_usage is not None and bool(report.sync_ms)

    async with scripted_worker(engine, trainer, tmp_path) as worker:
        report = await worker.until(is_whole)
        assert (report.kv_usage, report.seconds) == (0.25, {"idle": 1.0})
        assert {"fetch", "pause", "load", "finish", "paused"} <= set(report.sync_ms)
