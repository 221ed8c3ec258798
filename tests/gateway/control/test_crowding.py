"""Groups that nobody declared, and one group id for everything."""

import pytest
from structlog.testing import capture_logs

from claw_r1.datapool.fold.bounds import GROUP_SIZE_MAX
from claw_r1.gateway.control import crowding
from claw_r1.gateway.control.crowding import Crowds
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.paths import Identity
from claw_r1.schemas.events import CallCaptured, GroupMember, GroupRecord
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House, post, record

CALL = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


def crowds(metrics: Metrics | None = None) -> Crowds:
    return Crowds(metrics or Metrics(), size_max=4, crowded_min=2)


def pooled(*members: str, left_out: int = 0, declared: bool = False, group: str = "g") -> GroupRecord:
    listed = tuple(GroupMember(trajectory_id=name, status="open", ready=False, digest="") for name in members)
    return GroupRecord(group_id=group, declared=declared, members=listed, members_left_out=left_out, ready=False)


def refused(crowd: Crowds, trajectory: str, group: str = "g") -> bool:
    try:
        crowd.require_room(Identity(group, trajectory))
    except InvalidRequest as no:
        return no.code == "group_crowded"
    return False


def test_the_member_that_an_undeclared_group_has_no_room_for_is_refused_and_the_others_go_on() -> None:
    """By what this process saw; the warning comes once, long before."""
    metrics = Metrics()
    crowd = crowds(metrics)
    with capture_logs() as logs:
        assert [refused(crowd, name) for name in "abcabcded"] == [False] * 6 + [True] * 3
    assert [(one["event"], one["group_id"], one["members"]) for one in logs] == [("group_crowded", "g", 2)]
    exposed = metrics.exposition().decode()
    assert 'claw_gateway_crowding_total{said="warned"} 1.0' in exposed
    assert 'claw_gateway_crowding_total{said="refused"} 3.0' in exposed


def test_after_a_restart_the_pool_says_who_is_there() -> None:
    """Members of others and of an earlier process count, each once, and go on."""
    crowd = crowds()
    assert not refused(crowd, "a")
    crowd.take(pooled("a", "b"))
    assert [refused(crowd, name) for name in "bcd"] == [False, False, True]
    crowd.take(pooled("a", "b", left_out=9))
    assert [refused(crowd, name) for name in "ace"] == [False, False, True]


@pytest.mark.parametrize("where", ["here", "in the pool"])
def test_a_declared_group_is_not_refused(where: str) -> None:
    """Also when it is declared after it was refused: that is what the refusal advises."""
    crowd = crowds()
    assert [refused(crowd, name) for name in "abcd"] == [False, False, False, True]
    if where == "here":
        crowd.declared("g")
    else:
        crowd.take(pooled("a", "b", "c", declared=True))
    assert not any(refused(crowd, name) for name in "defgh")


def test_trajectories_that_are_their_own_group_leave_no_trace() -> None:
    """They are most of black-box traffic, and never crowd."""
    crowd = crowds()
    for number in range(10):
        crowd.require_room(Identity(f"t{number}", f"t{number}"))
    assert not crowd._seen


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups longest without a new member are forgotten; the pool still knows them when they are large."""
    monkeypatch.setattr(crowding, "REMEMBERED_MAX", 10)
    crowd = crowds()
    for number in range(100):
        crowd.declared(f"d{number}")
        crowd.require_room(Identity(f"g{number}", "a"))
    assert len(crowd._seen) <= 10
    assert crowd._remembered == sum(1 + len(one.members) for one in crowd._seen.values())


def test_members_of_a_declared_group_are_not_remembered() -> None:
    """Nobody counts them, and one group alone may have any number."""
    crowd = crowds()
    crowd.declared("g")
    for number in range(100):
        crowd.require_room(Identity("g", f"t{number}"))
    assert crowd._remembered == 1
    assert not crowd._seen["g"].members


async def test_the_ten_thousandth_member_of_an_undeclared_group_is_told_what_to_do(
    house: House, engine: ScriptedEngine
) -> None:
    """A call, a registration and a completion are refused in OpenAI's shape and leave no event; a declaration helps."""
    house.worker(engine.url)
    members = [f"t{number}" for number in range(GROUP_SIZE_MAX - 1)]
    house.admission.apply(record(pooled(*members)))
    for path, body in (
        ("chat/completions", CALL),
        ("register_trajectory", {}),
        ("complete_trajectory", {}),
    ):
        status, reply, _ = await post(house, f"/new/g/v1/{path}", body)
        assert (status, reply["error"]["code"], reply["error"]["param"]) == (400, "group_crowded", "group_id")
        assert "9999 members" in reply["error"]["message"]
        assert "POST /groups" in reply["error"]["message"]
    assert (await post(house, "/t7/g/v1/chat/completions", CALL))[0] == 200
    assert (await post(house, "/groups", {"group_id": "g", "size": GROUP_SIZE_MAX}))[0] == 201
    assert (await post(house, "/new/g/v1/chat/completions", CALL))[0] == 200
    assert [event.trajectory_id for event in house.events(CallCaptured)] == ["t7", "new"]


async def test_no_group_is_declared_with_more_members_than_its_record_holds(house: House) -> None:
    """Refused when it is declared, not found out at the ten-thousandth member."""
    status, reply, _ = await post(house, "/groups", {"size": GROUP_SIZE_MAX + 1})
    assert (status, reply["error"]["param"]) == (400, "size")
