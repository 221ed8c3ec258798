"""The whole loop on three brokers, of which one after the other is lost."""

from pathlib import Path

import pytest

from claw_r1.claw.local.kafka.cluster import LocalCluster
from tests.caches import share_caches
from tests.e2e.running_demo import RunningDemo, the_log_holds_what_was_promised
from tests.e2e.troubles import (
    another_killed_while_the_first_catches_up,
    controller_killed,
    disk_emptied,
    in_sync,
    one_isolated,
    one_killed,
)
from tests.patience import until
from tests.soak import only_in_soak

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(900)]

BATCHES = 150
"""Of a demo that is still at work when the last trouble is over."""


@only_in_soak
def test_the_loop_outlives_each_loss_of_a_broker(tmp_path: Path) -> None:
    """A demo of real parts on three brokers: every trouble in turn while it trains, and it ends by itself, with all it promised."""
    share_caches(tmp_path)
    cluster = LocalCluster(tmp_path / "broker", 3).start()
    demo = RunningDemo(tmp_path, 1, BATCHES, {})
    try:
        demo.wait_for_batch(1)
        pids = demo.pids()
        for trouble in (
            one_killed,
            another_killed_while_the_first_catches_up,
            controller_killed,
            disk_emptied,
            one_isolated,
        ):
            trouble(cluster, lambda **_: demo.wait_for_batch(demo.batch + 1))
            until(lambda: in_sync(cluster))
            demo.wait_for_batch(demo.batch + 1)
        assert demo.pids() == pids, "nobody ends"
        result = demo.result()
        assert result["batches"] == BATCHES
        assert result["groups_trained"] == 8 * BATCHES
        assert result["dead_letters"] == 0
        the_log_holds_what_was_promised(demo, tmp_path)
    finally:
        demo.process.kill()
        cluster.stop()
