"""Which worker a call goes to."""

from claw_r1.gateway.upstream.engines import Engine
from claw_r1.gateway.upstream.routing import AFFINITY_SLACK, choose

A, B = Engine(url="http://a", worker_id="a", model="m"), Engine(url="http://b", worker_id="b", model="m")


def pick(outstanding: dict[str, int], trajectory: str = "t", **asked: str | None) -> Engine | None:
    return choose([A, B], outstanding, **{"model": "m", "trajectory": trajectory, **asked})  # type: ignore[arg-type]  # fields by name, of any type


def test_trajectories_stay_and_spread() -> None:
    """A trajectory keeps its worker, trajectories spread, and a busy worker loses them to an idle one."""
    home = {name: pick({}, name) for name in map(str, range(100))}
    assert home == {name: pick({}, name) for name in map(str, range(100))}
    assert 20 < sum(server is A for server in home.values()) < 80
    assert {pick({"http://a": AFFINITY_SLACK + 1}, name) for name in home} == {B}


def test_failed_worker_is_avoided() -> None:
    """The server that just failed a call is taken again only when it is the only one."""
    assert {pick({}, str(number), avoid={"http://a"}) for number in range(20)} == {B}
    assert choose([A], {}, model="m", trajectory="t", avoid={"http://a"}) is A


def test_choice_respects_model_and_run() -> None:
    """No worker with the model: none. A worker with weights of the call's run is preferred, not required."""
    assert pick({}, model="other") is None
    trained = Engine(url="http://c", worker_id="c", model="m", run_id="r")
    chosen = {choose([A, trained, B], {}, model="m", trajectory=str(n), run_id="r") for n in range(20)}
    assert chosen == {trained}
    assert pick({}, run_id="r") is not None
