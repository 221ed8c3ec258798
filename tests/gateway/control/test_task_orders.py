"""Groups in an order: who has an ordinal, and where an order goes on."""

import aiohttp

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.eventlog.errors import LogError
from claw_r1.gateway.control.task_orders import Orders
from claw_r1.schemas.envelopes import decision_id, envelope
from claw_r1.schemas.events import GroupMember, GroupOpened, GroupRecord
from claw_r1.schemas.json_values import json_digest
from tests import facts
from tests.gateway.house import House, post, record


def opened(ordinal: int, order: str = "o", event_id: str = "e") -> GroupOpened:
    return GroupOpened(
        envelope=envelope("test", event_id=event_id),
        group_id=f"{order}-{ordinal}",
        expected_size=1,
        channel="train",
        ordinal=ordinal,
    )


async def open_at(house: House, ordinal: int, key: str) -> tuple[int, str]:
    body = {"group_id": f"o-{ordinal}", "ordinal": ordinal, "admission": False}
    status, answer, _ = await post(house, "/groups", body, idempotency_key=key)
    return status, answer.get("error", {}).get("code", "")


async def next_ordinal(house: House, order: str = "o") -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{house.url}/orders/{order}") as reply:
        assert reply.status == 200
        return int((await reply.json())["next_ordinal"])


async def test_an_ordinal_is_opened_by_one_runner(house: House) -> None:
    """A second request for it is refused, the same one repeated is not; other orders are not concerned."""
    assert await next_ordinal(house) == 0
    assert await open_at(house, 0, "a") == (201, "")
    assert await open_at(house, 0, "a") == (201, "")
    assert await open_at(house, 0, "b") == (409, "ordinal_taken")
    assert await open_at(house, 1, "b") == (201, "")
    assert (await next_ordinal(house), await next_ordinal(house, "p")) == (2, 0)
    events = {event.envelope.event_id: event for event in house.events(GroupOpened)}
    assert sorted((event.group_id, event.ordinal) for event in events.values()) == [("o-0", 0), ("o-1", 1)]


async def test_what_the_pool_has_is_taken(house: House) -> None:
    """A row of the pool counts like an opening of this process's: after a restart there is nothing else. The request that led to
    it, repeated because its reply was lost with the gateway, is not refused."""
    event_id = decision_id("GroupOpened", "o-6", "a")
    row = GroupRecord(group_id="o-6", channel="val", declared=True, declared_event_id=event_id, ready=False, ordinal=6)
    house.admission.apply(record(row))
    assert await next_ordinal(house) == 7
    assert await open_at(house, 6, "a") == (201, "")
    assert await open_at(house, 6, "c") == (409, "ordinal_taken")


def test_an_order_goes_on_behind_its_evicted_groups() -> None:
    """Or a runner that starts again would open groups whose facts the pool ignores."""
    orders, state = Orders(), None
    history = [facts.opened("o-6", ordinal=6), facts.call("o-6"), facts.evicted_group("o-6")]
    for fact, at in facts.placed(history):
        state = fold(state, fact, at)
    assert state is not None
    (stub,) = project(state).values()
    assert isinstance(stub, GroupRecord)
    orders.note(stub)
    assert (orders.next_ordinal("o"), stub.reasons) == (7, ("evicted",))


def test_only_groups_of_an_order_count() -> None:
    """An ordinal without its order in the id, and an id without an ordinal, are groups like any other."""
    orders = Orders()
    orders.note(GroupOpened(envelope=envelope("t"), group_id="o-4", expected_size=1, channel="train"))
    strange = GroupOpened(envelope=envelope("t"), group_id="mine", expected_size=1, channel="train", ordinal=4)
    orders.note(strange)
    assert not orders.is_taken(strange)
    assert orders.next_ordinal("o") == 0
    orders.note(opened(3))
    assert (orders.next_ordinal("o"), orders.is_taken(opened(1)), orders.is_taken(opened(4))) == (4, True, False)
    assert (orders.is_taken(opened(3)), orders.is_taken(opened(3, event_id="f"))) == (False, True)


async def test_calls_of_a_trajectory_can_be_asked_for(house: House) -> None:
    """Ids and versions in the order of the replies; a trajectory that is not known has none."""
    asks = [{"model": "tiny", "messages": [{"role": "user", "content": text}]} for text in ("a", "b")]
    ids = [(await post(house, "/t/g/v1/chat/completions", body))[2] for body in asks]
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{house.url}/t/g/v1/calls") as reply:
            calls = (await reply.json())["calls"]
        async with session.get(f"{house.url}/t/other/v1/calls") as reply:
            assert (await reply.json()) == {"calls": []}
    assert calls == [{"call_id": each["x-claw-call-id"], "policy_version": "run/3"} for each in ids]


async def test_without_the_log_nobody_says_where_an_order_goes_on() -> None:
    """503 with Retry-After instead of a number that may be too low."""

    def unreachable() -> None:
        raise LogError("away")

    with House() as house:
        house.admission.orders.read_unfolded = unreachable
        async with aiohttp.ClientSession() as session, session.get(f"{house.url}/orders/o") as reply:
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")


def played(
    ordinal: int,
    *returns: float | None,
    task: str | None = '{"n": 1}',
    ready: bool = True,
    unjudged: tuple[int, ...] = (),
) -> GroupRecord:
    """unjudged: members that are ready without a return."""
    members = tuple(
        GroupMember(
            trajectory_id=f"t{n}",
            status="completed",
            ready=value is not None or n in unjudged,
            return_total=value,
            digest="",
        )
        for n, value in enumerate(returns)
    )
    return GroupRecord(
        group_id=f"o-{ordinal}",
        channel="train",
        declared=True,
        task=task,
        ready=ready,
        ordinal=ordinal,
        members=members,
    )


async def test_a_gateway_knows_how_the_tasks_of_an_order_went(house: House) -> None:
    """Lowest and highest return of each ready group, by task, in the order of the groups and not of their rows; a later row replaces
    an earlier one, what is not ready does not count, other orders are not concerned."""
    rows = [played(9, 1.0, 0.0), played(2, 0.0, 0.5, None), played(3, 1.0, task='{"b": [], "a": 2.0}')]
    rows += [played(4, 1.0, ready=False), played(5, None), played(6, 1.0, task=None), played(9, 1.0, 1.0)]
    for row in rows:
        house.admission.apply(record(row))
    tasks = {}
    async with aiohttp.ClientSession() as session:
        for order in ("o", "p"):
            async with session.get(f"{house.url}/orders/{order}/returns") as reply:
                tasks[order] = (await reply.json())["tasks"]
    one, other = json_digest({"n": 1}), json_digest({"a": 2.0, "b": []})
    assert tasks == {"o": {one: [[0.0, 0.5], [1.0, 1.0]], other: [[1.0, 1.0]]}, "p": {}}
    assert await next_ordinal(house) == 10


def test_a_group_that_is_judged_in_part_went_no_way_yet() -> None:
    """Every member that is ready has a return, or nobody knows whether all solved the task; with the last one the group counts."""
    orders = Orders()
    orders.note(played(0, 1.0, None, None, unjudged=(1,)))
    assert orders.task_returns("o") == {}
    orders.note(played(0, 1.0, 0.0, None))
    assert orders.task_returns("o") == {json_digest({"n": 1}): [[0.0, 1.0]]}


async def test_a_task_is_known_by_what_the_runner_sent(house: House) -> None:
    """From the request over the event and the fold to the answer its digest is the runner's, whatever JSON is in it."""
    task = {"ü": [1.0, 1e22, 0.1, -0.0, 1 << 60], "a": {"z": None, "b": "\u2028 \U0001f600"}, "": True}
    body = {"group_id": "o-3", "ordinal": 3, "admission": False, "size": 1, "task": task}
    assert (await post(house, "/groups", body))[0] == 201
    (opening,) = house.events(GroupOpened)
    state = None
    for fact, at in facts.placed([opening, facts.call("o-3"), facts.reward("o-3"), facts.completed("o-3")]):
        state = fold(state, fact, at)
    assert state is not None
    (row,) = (each for each in project(state).values() if isinstance(each, GroupRecord))
    house.admission.apply(record(row))
    assert house.admission.orders.task_returns("o").keys() == {json_digest(task)}


def test_what_is_known_of_tasks_is_bounded() -> None:
    """Groups over all orders, those that were told of last; and of one task the latest groups."""
    orders = Orders()
    for ordinal in reversed(range(12)):
        orders.note(played(ordinal, ordinal))
    assert orders.task_returns("o") == {json_digest({"n": 1}): [[n, n] for n in range(4, 12)]}
    orders = Orders(returns_max=3)
    for ordinal in (0, 1, 2, 0, 3):
        orders.note(played(ordinal, ordinal))
    assert orders.task_returns("o") == {json_digest({"n": 1}): [[0, 0], [2, 2], [3, 3]]}
