"""Who a call is of: each line of the table in docs/callers.md."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.gateway.callers.caller_fields import hints
from claw_r1.gateway.callers.caller_headers import signs
from claw_r1.gateway.callers.callers import Caller, Callers, RetryKey
from claw_r1.gateway.callers.scopes import derived_id, own_id, owned_scope, require_own, scope_of
from claw_r1.gateway.errors import Forbidden, InvalidRequest
from claw_r1.gateway.paths import Identity, resolve
from claw_r1.schemas.api_keys import ApiKey

TEAM = ApiKey("agent", b"\x01" * 32, name="one", scope="team", idle_s=30.0)
NAMED = ApiKey("agent", b"\x02" * 32, name="two")
NAMELESS = ApiKey("agent", b"\x03" * 32)
ALONE = {"x-session-id": "s"}


def caller(
    path: str = "",
    headers: dict[str, str] | None = None,
    key: ApiKey | None = TEAM,
    callers: Callers | None = None,
    **body: object,
) -> Caller:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    of = callers or Callers(lambda *_: False)
    return of.caller(
        resolve(f"{path}/v1/chat/completions".encode()), key, signs(raw), hints(body), RetryKey(json.dumps(body))
    )


def of(group: str, trajectory: str, source: str) -> tuple[Identity, str]:
    return Identity(group, trajectory), source


@pytest.mark.parametrize(
    ("path", "headers", "key", "body", "expected"),
    [
        ("/t/g", {}, NAMED, {}, of("g", "t", "path")),
        ("/team%2Ft/team:g", {}, TEAM, {}, of("team:g", "team/t", "path")),
        ("/t/g", ALONE, NAMED, {"prompt_cache_key": "c"}, of("g", "t", "path")),
        ("/t", {}, NAMED, {}, of("t", "t", "path")),
        ("/team", {}, TEAM, {"user": "u"}, of("team", "team", "path")),
        ("/t", {"x-claw-group": "g"}, None, {}, of("g", "t", "path")),
        ("/t", {"x-claw-trajectory": "t", **ALONE}, None, {}, of("t", "t", "path")),
        ("/x", ALONE, None, {}, of("x/s", "x/s", "session:x-session-id")),
        ("/x", ALONE, NAMED, {}, of("key=two:x/s", "key=two:x/s", "session:x-session-id")),
        ("/x", ALONE, TEAM, {}, of("team:x/s", "team:x/s", "session:x-session-id")),
        ("/x", {"x-claw-group": "g"}, None, {"prompt_cache_key": "c:7"}, of("g", "x/c", "session:prompt_cache_key")),
        ("", {"x-claw-trajectory": "t"}, NAMED, {}, of("t", "t", "headers")),
        ("", {"x-claw-trajectory": "team/t%2F1", "x-claw-group": "team", **ALONE}, TEAM, {}, of("team", "team/t/1", "headers")),
        ("", {"thread-id": "h", **ALONE}, TEAM, {}, of("team/h", "team/h", "session:thread-id")),
        ("", {"session-id": "root", "x-session-affinity": "a"}, TEAM, {"prompt_cache_key": "c"}, of("team/a", "team/a", "session:x-session-affinity")),
        ("", {}, TEAM, {"prompt_cache_key": "a:b:12", "user": "u"}, of("team/a%3Ab", "team/a%3Ab", "session:prompt_cache_key")),
        ("", {}, TEAM, {"metadata": {"user_id": "user_1_account__session_" + "a" * 36}}, of("team/" + "a" * 36, "team/" + "a" * 36, "session:metadata.user_id")),
        ("", {}, TEAM, {"metadata": {"user_id": "u", "session_id": "m"}}, of("team/m", "team/m", "session:metadata.session_id")),
        ("", {}, TEAM, {"user": "u"}, of("team/u", "team/u", "session:user")),
        ("", ALONE, NAMED, {}, of("key=two/s", "key=two/s", "session:x-session-id")),
        ("", ALONE, NAMELESS, {}, of("key=0303030303030303/s", "key=0303030303030303/s", "session:x-session-id")),
        ("", ALONE, None, {}, of("local/s", "local/s", "session:x-session-id")),
    ],
)  # fmt: skip
def test_the_first_that_is_there_wins(
    path: str, headers: dict[str, str], key: ApiKey | None, body: dict[str, object], expected: tuple[Identity, str]
) -> None:
    """Path, our headers, scope and session; the source says which."""
    made = caller(path, headers, key, **body)
    assert (made.identity, made.source) == expected


@pytest.mark.parametrize("key", [None, NAMED, NAMELESS])
def test_nobody_who_is_named_by_nothing_gets_a_lane(key: ApiKey | None) -> None:
    """Without a scope nothing is guessed: each call is a trajectory of its own, as it was."""
    callers, body = Callers(lambda *_: False), {"messages": [{"role": "user", "content": "hi"}]}
    lanes = [caller("", {"traceparent": "x", "x-client-request-id": "r"}, key, callers, **body) for _ in range(2)]
    assert [lane.source for lane in lanes] == ["none", "none"]
    assert lanes[0].identity != lanes[1].identity
    assert not lanes[0].identity.named


@pytest.mark.parametrize(
    ("path", "headers", "param"),
    [
        ("/t1", {"x-claw-trajectory": "t2"}, "x-claw-trajectory"),
        ("/t1/g1", {"x-claw-trajectory": "t2"}, "x-claw-trajectory"),
        ("/g1/t2", {"x-claw-group": "g9"}, "x-claw-group"),
        ("", {"x-claw-trajectory": "x" * 10_000}, "x-claw-trajectory"),
        ("", {"x-claw-trajectory": "%00"}, "x-claw-trajectory"),
        ("", {"x-claw-group": "%ED%A0%80"}, "x-claw-group"),
        ("", {"x-claw-parent": "%ff"}, "x-claw-parent"),
        ("", {"x-claw-kind": "mine"}, "x-claw-kind"),
    ],
)
def test_what_we_named_must_make_sense(path: str, headers: dict[str, str], param: str) -> None:
    """Two identities that contradict each other, and ids that are none, are refused by name."""
    with pytest.raises(InvalidRequest) as refused:
        caller(path, headers, NAMED)
    assert refused.value.param == param
    if path:
        assert all(
            repr(name) in refused.value.message for name in (headers[param], path.split("/")[1 + ("group" in param)])
        )


@pytest.mark.parametrize("name", ["x" * 513, "x" * 10_000, "a\x00b", "a\ud800", "a\nb", "", None, 5, ["s"], {"a": 1}])
def test_a_session_that_is_no_name_says_nothing(name: object) -> None:
    """In fields and in headers of others: such a call has no session, and is refused for nothing."""
    fields = {"prompt_cache_key": name, "metadata": {"user_id": name, "session_id": name}, "user": name}
    assert caller("", {}, None, **fields).source == "none"
    if isinstance(name, str) and "\ud800" not in name:
        headers = dict.fromkeys(("thread-id", "x-claude-code-session-id", "x-session-id", "x-session-affinity"), name)
        assert caller("", headers, None).source == "none"


@pytest.mark.parametrize("user_id", ["{", "{}", '{"session_id": 1}', "{" * 5000, "x_session_1"])
def test_a_user_id_without_a_session_says_nothing(user_id: str) -> None:
    """A person is no session."""
    assert caller("", {}, None, metadata={"user_id": user_id}).source == "none"


def test_bytes_that_are_no_text_stay_apart() -> None:
    """Two names that are no UTF-8 are not read as the same one."""
    names = [signs([(b"x-session-id", raw)]).session for raw in (b"a\xe9", b"a\xe8")]
    assert names[0] != names[1]


KEYS = st.builds(
    ApiKey, st.just("agent"), st.binary(min_size=32, max_size=32), name=st.sampled_from(["", "a", "a:b", "team"]),
    scope=st.sampled_from([None, "a", "a/b", "a:b", "key=a", "local"]),
)  # fmt: skip
NAMES = st.text("ab/:=%", min_size=1, max_size=4)
PARTS = st.lists(NAMES, min_size=1, max_size=2).map(tuple)


@given(NAMES, NAMES, NAMES, NAMES, PARTS, PARTS)
def test_two_sessions_are_never_one(
    scope1: str, scope2: str, path1: str, path2: str, parts1: tuple[str, ...], parts2: tuple[str, ...]
) -> None:
    """The id of a session tells scope, path and parts: other ones give another id, however they are written."""
    ids = [
        derived_id(scope_of(ApiKey("agent", b"", scope=scope), path), parts)
        for scope, path, parts in ((scope1, path1, parts1), (scope2, path2, parts2))
    ]
    assert (ids[0] == ids[1]) == ((scope1, path1, parts1) == (scope2, path2, parts2))


@given(KEYS, KEYS, st.text(min_size=1, max_size=300))
def test_equal_sessions_of_two_keys_are_two(one: ApiKey, other: ApiKey, session: str) -> None:
    """Unless the keys share a scope; of two keys without one, unless they share a name, as a key and its successor do."""
    ids = [derived_id(scope_of(key, None), (session,)) for key in (one, other)]
    own = [(key.scope, None if key.scope else key.name or key.digest) for key in (one, other)]
    assert (ids[0] == ids[1]) == (own[0] == own[1])
    assert all(len(name) <= 512 for name in ids)


IDLE = ApiKey("agent", b"\x04" * 32, name="laptop", idle_s=30.0)


@pytest.mark.parametrize("key", [None, NAMED, NAMELESS])
@pytest.mark.parametrize("name", ["t", "team/t", "key=two/t", "key=one/t"])
def test_a_key_without_a_scope_names_what_it_likes(key: ApiKey | None, name: str) -> None:
    """As before keys had scopes; what is made up for it has none either."""
    require_own(key, trajectory_id=name, group_id=None)
    assert own_id(key, "lane-1") == "lane-1"


@pytest.mark.parametrize(
    ("key", "own", "foreign"),
    [
        (TEAM, ["team", "team/", "team/s", "team:x/s"], ["teams/s", "team2", "TEAM/s", "tea", "", "/team/s", "team%2Fs", "key=one/s"]),
        (IDLE, ["key=laptop", "key=laptop/s", "key=laptop:x"], ["key=laptop2/s", "key=/s", "laptop/s", "key%3Dlaptop/s", "local/s"]),
        (ApiKey("agent", b"", scope="a/b"), ["a%2Fb/s"], ["a/b", "a/b/s", "a%2Fbc", "a%2F", "a%2fb/s"]),
        (ApiKey("agent", b"", scope="key=laptop"), ["key%3Dlaptop/s"], ["key=laptop/s"]),
        (ApiKey("agent", b"", scope="a:b"), ["a%3Ab:x/s"], ["a:b", "a:b/s"]),
    ],
)  # fmt: skip
def test_a_key_with_a_scope_or_a_silence_owns_what_begins_with_its_scope(
    key: ApiKey, own: list[str], foreign: list[str]
) -> None:
    """Behind the scope stands `/`, `:` or nothing, so no scope that begins alike is meant."""
    for name in own:
        require_own(key, trajectory_id=name)
    for name in foreign:
        with pytest.raises(Forbidden) as refused:
            require_own(key, group_id=None, trajectory_id=name)
        assert (refused.value.param, refused.value.code) == ("trajectory_id", "not_owned")
        assert repr(name) in refused.value.message


OWNERS = st.builds(
    ApiKey, st.just("agent"), st.binary(min_size=32, max_size=32), name=st.text(max_size=400), idle_s=st.just(1.0),
    scope=st.none() | st.text("ab/:=%\u00e9", min_size=1, max_size=400),
)  # fmt: skip


@given(OWNERS, OWNERS, NAMES, PARTS)
def test_what_is_made_for_a_key_is_its_own_and_no_other_keys(
    one: ApiKey, other: ApiKey, path: str, parts: tuple[str, ...]
) -> None:
    """Sessions, also long ones and within a path, lanes and groups; whatever scopes and names people think of."""
    made = [derived_id(scope_of(one, at), (*parts, end)) for at in (None, path) for end in ("", "x" * 300)]
    made.append(own_id(one, "lane-1"))
    require_own(one, **{str(number): name for number, name in enumerate(made)})
    assert all(len(name) <= 512 for name in made)
    if owned_scope(one) != owned_scope(other):
        for name in made:
            with pytest.raises(Forbidden):
                require_own(other, name=name)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/t/g", {}),
        ("/team%2Ft/g", {}),
        ("/t/team%2Fg", {}),
        ("/t", {}),
        ("/t", {"user": "u"}),
        ("", {"x-claw-trajectory": "t"}),
        ("", {"x-claw-trajectory": "team/t", "x-claw-group": "g"}),
        ("", {"x-claw-group": "g", **ALONE}),
        ("/x", {"x-claw-group": "g", **ALONE}),
        ("", {"x-claw-parent": "p", **ALONE}),
    ],
)
def test_a_call_names_what_its_key_owns(path: str, headers: dict[str, str]) -> None:
    """By path and by each header of ours, and the refusal says which; nothing is remembered of it."""
    callers, body = Callers(lambda *_: False), {"messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(Forbidden):
        caller(path, headers, TEAM, callers, **body)
    assert not callers._continuations._owners


def test_a_lane_is_its_keys_own() -> None:
    """Who speaks without a session judges its call afterwards, under the ids that the reply names."""
    lane = caller("", {}, IDLE)
    assert (lane.source, lane.identity.named) == ("none", False)
    require_own(IDLE, trajectory_id=lane.identity.trajectory_id, group_id=lane.identity.group_id)


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"x-claw-kind": "main", "x-turn-type": "side"}, "main"),
        ({"x-turn-type": "side", "x-parent-session-id": "p"}, "side"),
        ({"x-turn-type": "odd"}, None),
        ({"x-codex-turn-metadata": '{"request_kind": "compaction"}', "x-openai-subagent": "collab_spawn"}, "side"),
        ({"x-codex-turn-metadata": '{"request_kind": "turn"}', "x-openai-subagent": "collab_spawn"}, "subagent"),
        ({"x-codex-turn-metadata": '{"request_kind": "turn"}'}, "main"),
        ({"x-codex-turn-metadata": "{"}, None),
        ({"x-codex-turn-metadata": "[]"}, None),
        ({"x-openai-subagent": "collab_spawn"}, "subagent"),
        ({"x-claw-parent": "p"}, "subagent"),
        ({"x-codex-parent-thread-id": "p"}, "subagent"),
        ({"x-session-id": "p", "x-parent-session-id": "p"}, None),
        ({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}, "subagent"),
        ({"x-claude-code-session-id": "s"}, None),
    ],
)
def test_what_a_call_is_for(headers: dict[str, str], kind: str | None) -> None:
    """As its client says; of a sub-agent's turn only the marks of sub-agents tell."""
    assert signs([(name.encode(), value.encode()) for name, value in headers.items()]).kind == kind


def test_a_gateway_says_what_a_client_says_and_whether_there_are_tools() -> None:
    """What a call counts as, the pool tells from all calls of its trajectory."""
    callers, tools = Callers(lambda *_: False), [{"type": "function"}]
    title, call = caller("/t/g", {}, NAMED, callers), caller("/t/g", {}, NAMED, callers, tools=tools)
    named = caller("/t/g", {"x-claw-kind": "main"}, NAMED, callers)
    assert [(one.kind, one.has_tools) for one in (title, call, named)] == [(None, False), (None, True), ("main", False)]


@pytest.mark.parametrize(
    ("headers", "parent"),
    [
        ({"x-claw-parent": "team%2Fp", "x-parent-session-id": "s0", **ALONE}, "team/p"),
        ({"x-parent-session-id": "s0", **ALONE}, "team/s0"),
        ({"x-codex-parent-thread-id": "h0", "thread-id": "h"}, "team/h0"),
        ({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}, "team/s"),
        (ALONE, None),
    ],
)
def test_who_started_a_sub_agent(headers: dict[str, str], parent: str | None) -> None:
    """The trajectory of the session that it names."""
    assert caller("", headers).parent == parent


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ("claude-cli/2.1.330 (external, cli)", "claude-cli/2.1.330"),
        ("x" * 99, "x" * 64),
        (" ", None),
        ("a\x01 b", None),
    ],
)
def test_the_program_that_calls(agent: str, client: str | None) -> None:
    """The first product of the user-agent, bounded."""
    assert caller("", {"user-agent": agent}).client == client


def test_only_sessions_complete_by_silence() -> None:
    """What a path or a header names is completed by whoever named it."""
    messages = [{"role": "user", "content": "hi"}]
    assert caller("", ALONE).idle_s == caller("", messages=messages).idle_s == caller("", prompt="x").idle_s == 30.0
    assert caller("/team%2Ft/team", ALONE).idle_s is caller("", {"x-claw-trajectory": "team/t"}).idle_s is None
    assert caller("", ALONE, None).idle_s is None
