"""The pure parts: paths, headers, sampling parameters, spans, worker choice, admission."""

import json

import pytest
from msgspec.structs import replace

from claw_r1.gateway.control.admission import AdmissionView, Admitted, Wait, admit
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.headers import client_headers, reply_headers, version_range
from claw_r1.gateway.openai.request import parse_chat
from claw_r1.gateway.paths import Identity, Route, resolve
from claw_r1.gateway.protocols import PROTOCOLS
from claw_r1.gateway.tokens.version_spans import Spans, spans_of
from claw_r1.gateway.upstream.engines import Engine, EngineTable
from claw_r1.gateway.upstream.routing import AFFINITY_SLACK, choose
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    GroupMember,
    GroupRecord,
    PlannedTrajectory,
    RunStarted,
    VersionSpan,
)
from tests.gateway.house import record, report

T1 = Identity("g", "t")
CHAT = dict(PROTOCOLS)["chat/completions"]


@pytest.mark.parametrize(
    ("path", "route"),
    [
        (b"/t/g/v1/chat/completions", Route("chat/completions", T1, CHAT)),
        (b"/t/g/chat/completions", Route("chat/completions", T1, CHAT)),
        (b"/t/v1/chat/completions", Route("chat/completions", Identity("t", "t"), CHAT, lone=True)),
        (b"/t/chat/completions", Route("chat/completions", Identity("t", "t"), CHAT, lone=True)),
        (b"/v1/chat/completions", Route("chat/completions", None, CHAT)),
        (b"/chat/completions", Route("chat/completions", None, CHAT)),
        (b"/t/g/v1/models", Route("models", T1)),
        (b"/t/g/rewards", Route("rewards", T1)),
        (b"/t/g/v1/complete_trajectory", Route("complete_trajectory", T1)),
        (b"/a%2Fb/%E2%98%83/v1/rewards", Route("rewards", Identity("☃", "a/b"))),
        (b"/t/v1/v1/rewards", Route("rewards", Identity("v1", "t"))),
        (b"/x/t/g/v1/chat/completions", None),
        (b"/t/g/v1/embeddings", None),
        (b"/groups", None),
        (b"/", None),
        (b"/t/g/v1/chat/completions/", None),
    ],
)
def test_paths_name_trajectories(path: bytes, route: Route | None) -> None:
    """Identity is read from the raw path; an encoded slash belongs to an id."""
    assert resolve(path) == route


@pytest.mark.parametrize(
    "path", [b"//g/v1/rewards", b"/t//rewards", b"/t%00/g/rewards", b"/%ED%A0%80/g/rewards", b"/%ff/g/rewards"]
)
def test_bad_ids_are_refused(path: bytes) -> None:
    """Empty ids, control characters, broken UTF-8 and lone surrogates are a bad request."""
    with pytest.raises(InvalidRequest):
        resolve(path)


def test_ids_have_a_length() -> None:
    """512 characters are an id, 513 are none."""
    assert resolve(b"/" + b"x" * 512 + b"/g/rewards") is not None
    with pytest.raises(InvalidRequest):
        resolve(b"/" + b"x" * 513 + b"/g/rewards")


def test_headers_are_read_by_name_only() -> None:
    """Known headers are parsed, broken counters and traces are dropped, everything else is never looked at."""
    read = client_headers(
        [
            (b"x-claw-tags", b"a, b,,c"),
            (b"x-claw-retry-count", b"-1"),
            (b"traceparent", b"nonsense"),
            (b"authorization", b"Bearer s3cret"),
            (b"x-claw-agent", "ü".encode()),
        ],
        None,
    )
    assert (read.tags, read.retry_count, read.traceparent, read.agent) == (("a", "b", "c"), None, None, "ü")
    assert "s3cret" not in repr(read)


@pytest.mark.parametrize("value", [b"x" * 513, b"a\x01b"])
def test_bad_headers_are_refused(value: bytes) -> None:
    """Overlong values and control characters are a bad request, named by header."""
    with pytest.raises(InvalidRequest) as refused:
        client_headers([(b"x-claw-agent", value)], None)
    assert refused.value.param == "x-claw-agent"


def span(run: str, version: int, start: int, end: int) -> VersionSpan:
    return VersionSpan(run_id=run, version=version, start=start, end=end)


def test_policy_version_header() -> None:
    """One version, a range, or several runs; always printable ASCII."""
    assert version_range((span("r", 3, 0, 4),)) == "r/3"
    assert version_range((span("r", 3, 0, 4), span("r", 5, 4, 9))) == "r/3..5"
    assert version_range((span("base", 0, 0, 4), span("r", 1, 4, 9))) == "base/0,r/1"
    values = dict(reply_headers(Identity("☃\u00a0", "a b/ü"), "c", (span("ü", 1, 0, 1),)))
    assert values == {
        b"x-claw-group": b"%E2%98%83%C2%A0",
        b"x-claw-trajectory": b"a%20b/%C3%BC",
        b"x-claw-call-id": b"c",
        b"x-claw-policy-version": b"%C3%BC/1",
    }


@pytest.mark.parametrize(
    ("fields", "temperature", "max_tokens"),
    [
        ({}, 1.0, None),
        ({"temperature": 0, "max_tokens": 5}, 0.0, 5),
        ({"temperature": 0.7, "max_tokens": 5, "max_completion_tokens": 7}, 0.7, 7),
        ({"max_output_tokens": 9}, 1.0, 9),
        ({"temperature": "hot", "max_tokens": "9"}, 1.0, None),
        ({"temperature": True, "max_tokens": True}, 1.0, None),
        ({"temperature": None, "max_tokens": -1}, 1.0, None),
        ({"max_tokens": 1 << 40}, 1.0, None),
        ({"temperature": [], "n": 0, "top_k": 1.5, "stop": 5, "seed": 1 << 64}, 1.0, None),
    ],
)
def test_what_was_asked_for_is_kept_and_the_engine_judges_it(
    fields: dict[str, object], temperature: float, max_tokens: int | None
) -> None:
    """Of a call whose engine does not say what it used, the record has the temperature and the limit that were asked for."""
    asked = parse_chat(json.dumps({"messages": [], **fields}).encode()).sampling
    assert (asked.temperature, asked.max_tokens) == (temperature, max_tokens)


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        ([["r/3", 0, 5]], 5, Spans((span("r", 3, 0, 5),))),
        ([["r/3", 0, 2], ["r/4", 2, 5]], 5, Spans((span("r", 3, 0, 2), span("r", 4, 2, 5)))),
        ([["a/b/3", 0, 5]], 5, Spans((span("a/b", 3, 0, 5),))),
        ([["default", 0, 5]], 5, Spans(missing="version_unknown")),
        ([["r/x", 0, 5]], 5, Spans(missing="version_unknown")),
        ([["r/-1", 0, 5]], 5, Spans(missing="version_unknown")),
        ([["/1", 0, 5]], 5, Spans(missing="version_unknown")),
        ([["r/1", 0, 4]], 5, Spans(missing="spans")),
        ([["r/1", 0, 6]], 5, Spans(missing="spans")),
        ([["r/1", 1, 5]], 5, Spans(missing="spans")),
        ([["r/1", 0, 3], ["r/2", 2, 5]], 5, Spans(missing="spans")),
        ([["r/1", 0, 3], ["r/2", 3, 3], ["r/3", 3, 5]], 5, Spans(missing="spans")),
        ([["r/1", 0, True]], 1, Spans(missing="spans")),
        ([["r/1", 0]], 5, Spans(missing="spans")),
        (["r/1"], 5, Spans(missing="spans")),
        ([], 5, Spans(missing="spans")),
        ([], 0, Spans()),
    ],
)
def test_spans_tile_or_are_left_out(rows: list[object], length: int, expected: Spans) -> None:
    """Spans cover [0, length) without gap or overlap, with known labels; otherwise there are none, with a reason."""
    assert spans_of(rows, length) == expected


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


@pytest.mark.parametrize(
    ("under_way", "staleness", "per_batch", "admitted"),
    [(0, 0, 1, True), (1, 0, 1, False), (15, 1, 8, True), (16, 1, 8, False), (7, 0, 8, True), (8, 0, 8, False)],
)
def test_admission(under_way: int, staleness: int, per_batch: int, admitted: bool) -> None:
    """Groups under way stay below (staleness + 1) x groups per batch."""
    assert admit(under_way, staleness, per_batch) == (Admitted() if admitted else Wait("capacity"))


def view(run: str = "r", staleness: int = 0, per_batch: int = 2) -> AdmissionView:
    seen = AdmissionView()
    seen.apply(record(started(run, staleness, per_batch)))
    return seen


def started(run: str = "r", staleness: int = 0, per_batch: int = 2, incarnation: int = 0) -> RunStarted:
    return RunStarted(
        envelope=envelope("trainer/x"),
        run_id=run,
        model_id="m",
        incarnation=incarnation,
        config="{}",
        group_size=2,
        groups_per_batch=per_batch,
        staleness_max=staleness,
        facts_prefix="claw",
    )


def trained(*group_ids: str, sequence: int = 0) -> BatchTrained:
    return BatchTrained(
        envelope=envelope("trainer/x"),
        run_id="r",
        sequence=sequence,
        version=sequence + 1,
        metrics={},
        group_ids=group_ids,
    )


def planned(*group_ids: str) -> BatchAssembled:
    members = [
        PlannedTrajectory(group_id=name, trajectory_id="t", reward=0.0, advantage=0.0, steps=()) for name in group_ids
    ]
    return BatchAssembled(
        envelope=envelope("trainer/x"),
        run_id="r",
        sequence=0,
        version=0,
        spec="{}",
        trajectories=tuple(members),
        seed=0,
    )


def group(
    group_id: str,
    *,
    run: str | None = "r",
    channel: str = "train",
    closed: bool = False,
    ready: bool = False,
    declared: bool = True,
) -> GroupRecord:
    member = GroupMember(trajectory_id="t", status="completed", ready=ready, digest="")
    return GroupRecord(
        group_id=group_id, declared=declared, run_id=run, channel=channel, closed=closed, members=(member,), ready=ready
    )


def skipped(*group_ids: str) -> BatchSkipped:
    return BatchSkipped(envelope=envelope("trainer/x"), run_id="r", group_ids=group_ids, reason="stale")


def test_run_has_to_be_known() -> None:
    """Before RunStarted nothing is admitted."""
    seen = AdmissionView()
    assert seen.reserve("r", "g") == Wait("run_unknown")
    seen.apply(record(started()))
    assert seen.reserve("r", "g") == Admitted()


def test_reservations_and_pool_count_once() -> None:
    """A group counts once, whether this process opened it, the pool shows it, or both."""
    seen = view()
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(group("g1")))
    assert seen.reserve("r", "g1") == Admitted(counted=False)
    assert seen.reserve("r", "g2") == Admitted()
    assert seen.reserve("r", "g3") == Wait("capacity")


def test_capacity_comes_back() -> None:
    """Skipped groups, groups closed with nothing to train, released reservations and new versions make room."""
    seen = view()
    seen.apply(record(group("g1")))
    seen.apply(record(group("g2")))
    assert seen.reserve("r", "g3") == Wait("capacity")
    seen.apply(record(skipped("g1")))
    seen.apply(record(skipped("g1", "elsewhere")))
    assert seen.reserve("r", "g3") == Admitted()
    assert seen.reserve("r", "g4") == Wait("capacity")
    seen.release("r", "g3")
    assert seen.reserve("r", "g4") == Admitted()
    seen.apply(record(group("g2", closed=True)))
    assert seen.reserve("r", "g5") == Admitted()
    seen.apply(record(group("g2", closed=True, ready=True)))
    assert seen.reserve("r", "g6") == Wait("capacity")
    seen.apply(record(trained("g2", "g4")))
    assert seen.reserve("r", "g6") == Admitted()
    assert seen.reserve("r", "g7") == Wait("capacity")


def evicted(group_id: str) -> GroupRecord:
    stub = group(group_id)
    return replace(stub, members=(), channel="", reasons=("evicted",), evicted_event_id="e", evicted_reason="retention")


def test_a_trained_group_that_is_evicted_makes_no_room_a_second_time() -> None:
    """Its batch gave the room back already: or a long run whose pool ends would open more and more groups."""
    seen = view()
    for batch in range(10):
        names = [f"g{batch}-{number}" for number in range(2)]
        assert [seen.reserve("r", name) for name in names] == [Admitted()] * 2
        assert seen.reserve("r", "one more") == Wait("capacity"), batch
        seen.apply(record(trained(*names, sequence=batch)))
        for name in names:
            seen.apply(record(group(name, ready=True)))
            seen.apply(record(evicted(name)))
    assert seen.run_of("g0-0") is None, "an evicted group is remembered nowhere"


def test_a_group_that_is_evicted_before_it_was_trained_gives_its_room_back() -> None:
    """Nobody will train it; a late word for it changes nothing."""
    seen = view(per_batch=1)
    seen.apply(record(group("g")))
    assert seen.reserve("r", "h") == Wait("capacity")
    seen.apply(record(evicted("g")))
    seen.apply(record(evicted("g")))
    assert seen.reserve("r", "h") == Admitted()


def test_the_groups_of_a_batch_stand_in_its_plan_where_the_event_does_not_name_them() -> None:
    """Runs that an older trainer trained, and a batch that a resumed one publishes from its checkpoint."""
    seen = view()
    assert [seen.reserve("r", name) for name in ("g1", "g2")] == [Admitted()] * 2
    seen.apply(record(planned("g1", "g2")))
    assert seen.reserve("r", "g3") == Wait("capacity")
    seen.apply(record(trained(sequence=1)))
    assert seen.reserve("r", "g3") == Wait("capacity"), "that is another plan"
    seen.apply(record(planned("g1", "g2")))
    seen.apply(record(trained()))
    assert seen.reserve("r", "g3") == Admitted()


def test_a_plan_that_cannot_be_read_ends_nobody() -> None:
    """The follower's thread would end, and with it every admission."""
    seen = view(per_batch=1)
    whole = record(planned("g1"))
    seen.apply(replace(whole, value=whole.value and whole.value[:-9]))
    seen.apply(record(trained()))
    assert seen.reserve("r", "g1") == Admitted()


def test_a_plan_that_is_read_before_the_pool_is_forgotten_with_the_stub() -> None:
    """A gateway that starts reads the plans of years first, and then of their groups only stubs; of those that are not folded in
    a new generation yet, the rows come later and take no room."""
    seen = view()
    seen.apply(record(trained("old", "folded later")))
    seen.apply(record(evicted("old")))
    assert seen._runs["r"].over == {"folded later"}
    seen.apply(record(group("folded later", ready=True)))
    assert [seen.reserve("r", name) for name in ("g1", "g2", "g3")] == [Admitted(), Admitted(), Wait("capacity")]


def ended(group_id: str, *members: GroupMember, size: int | None = 2) -> GroupRecord:
    return replace(group(group_id), members=members, expected_size=size)


def member(
    status: str = "failed", earned: float | None = None, version: int | None = None, *, ready: bool = False
) -> GroupMember:
    return GroupMember(
        trajectory_id="t", status=status, ready=ready, digest="", return_total=earned, min_version=version
    )


FAILED = member()


def test_a_burst_of_failed_episodes_takes_no_room() -> None:
    """Groups of which every member broke off without an outcome make room for others long before their deadline."""
    seen = view()
    for number in range(16):
        assert seen.reserve("r", f"g{number}") == Admitted(), number
        seen.apply(record(ended(f"g{number}", FAILED, member("abandoned", version=0))))
    assert seen.reserve("r", "h0") == Admitted()
    seen.apply(record(ended("g0", FAILED, member(earned=1.0, version=0, ready=True))))  # somebody judged one of them
    assert seen.reserve("r", "h1") == Wait("capacity")


@pytest.mark.parametrize(
    ("row", "takes_room"),
    [
        (ended("g", FAILED, FAILED), False),
        (ended("g", FAILED, member("evicted")), False),
        (ended("g", FAILED, member(earned=0.0)), False),  # judged, but nothing was sampled
        (ended("g", FAILED, member(earned=0.0, version=0)), False),  # its calls were rewarded, its outcome was not
        (ended("g", FAILED, member("abandoned", earned=0.0)), False),  # nothing was sampled
        (ended("g", FAILED, member("abandoned", earned=0.0, version=0)), True),  # specs may train it
        (ended("g", FAILED, member("completed", version=0)), True),  # its reward may come
        (ended("g", FAILED, member("completed")), True),  # of a provider, whose versions nobody knows
        (ended("g", FAILED, member("open")), True),
        (ended("g", FAILED, member(earned=0.0, version=0, ready=True)), True),
        (ended("g", FAILED, size=2), True),  # another may come
        (ended("g", FAILED, FAILED, size=None), True),
    ],
)
def test_a_group_takes_room_as_long_as_anything_may_be_trained(row: GroupRecord, takes_room: bool) -> None:
    """What waits for a member, a reward or the trainer does; what only a judgement of failures could save does not."""
    seen = view(per_batch=1)
    assert seen.reserve("r", "g") == Admitted()
    seen.apply(record(row))
    assert seen.reserve("r", "h") == (Wait("capacity") if takes_room else Admitted())


def test_weights_that_are_published_again_make_no_room() -> None:
    """A replay that gives other bytes takes another number for the weights of the same batch; nothing more was trained."""
    seen = view()
    assert [seen.reserve("r", f"g{n}") for n in range(3)] == [Admitted(), Admitted(), Wait("capacity")]
    for version in (1, 2):
        seen.apply(record(replace(trained("g0"), version=version)))
    assert [seen.reserve("r", f"h{n}") for n in range(2)] == [Admitted(), Wait("capacity")]


def test_a_batch_that_was_given_up_makes_room_once() -> None:
    """Its groups are returned; that its number lies below those in the weights is no second return."""
    seen = view()
    opened = [seen.reserve("r", f"g{n}") for n in range(2)]
    seen.apply(record(trained(sequence=1)))
    seen.apply(record(replace(skipped("g0", "g1"), sequence=0)))
    opened += [seen.reserve("r", f"h{n}") for n in range(3)]
    assert opened == [*[Admitted()] * 4, Wait("capacity")]


def test_a_group_whose_channel_becomes_another_gives_its_room_back() -> None:
    """One call that names another channel makes the group that channel's, for good: nobody trains it for this run."""
    seen = view()
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(group("g1")))
    seen.apply(record(group("g2")))
    seen.apply(record(group("g1", channel="val")))
    assert seen.reserve("r", "g3") == Admitted()
    seen.apply(record(skipped("g3")))
    seen.apply(record(group("g3", channel="probe")))
    assert seen.reserve("r", "g4") == Admitted()
    assert seen.reserve("r", "g5") == Wait("capacity")


def test_a_group_is_of_one_run_and_the_other_ones_room_comes_back() -> None:
    """Two gateways let two runs open one group; the pool says whose it is. A stray call of another run says nothing."""
    seen = view()
    assert seen.reserve("r", "g1") == Admitted()
    seen.apply(record(group("g1", run="calls", declared=False)))
    assert seen.run_of("g1") == "r"
    assert (seen.reserve("r", "g2"), seen.reserve("r", "g3")) == (Admitted(), Wait("capacity"))
    seen.apply(record(group("g1", run="other")))
    assert (seen.run_of("g1"), seen.reserve("r", "g3")) == ("other", Admitted())


def test_groups_without_room_are_of_their_run_too() -> None:
    """Those of other channels, and those that were opened without admission."""
    seen = view()
    seen.apply(record(group("v", run="other", channel="val")))
    assert (seen.note("r", "w"), seen.note("r", "w")) == (True, False)
    assert (seen.run_of("v"), seen.run_of("w"), seen.run_of("x")) == ("other", "r", None)
    seen.release("r", "w")
    assert seen.run_of("w") is None


def test_a_group_counts_once_somebody_declares_it() -> None:
    """A call may be folded before its group's declaration; a reservation counts before either."""
    seen = view()
    seen.apply(record(group("g1", declared=False)))
    seen.apply(record(group("g1")))
    assert seen.reserve("r", "g2") == Admitted()
    seen.apply(record(group("g2", declared=False)))
    assert seen.reserve("r", "g3") == Wait("capacity")


def test_skip_before_the_group_is_seen() -> None:
    """Topics are read in any order: a skip that comes first returns the group's capacity once it appears."""
    seen = view()
    seen.apply(record(skipped("g1")))
    seen.apply(record(group("g1")))
    seen.apply(record(group("g2")))
    assert seen.reserve("r", "g3") == Admitted()
    assert seen.reserve("r", "g4") == Wait("capacity")


def test_other_groups_take_no_room() -> None:
    """Groups of other runs, of no run, of other channels and undeclared ones do not count, nor do batches of them make room."""
    seen = view()
    for number, kind in enumerate(({"run": "other"}, {"run": None}, {"channel": "val"}, {"declared": False})):
        seen.apply(record(group(f"x{number}", **kind)))  # type: ignore[arg-type]  # fields by name, of any type
    seen.apply(record(trained("x1", "x3")))
    seen.apply(record(group("g1")))
    assert [seen.reserve("r", f"h{number}") for number in range(2)] == [Admitted(), Wait("capacity")]
