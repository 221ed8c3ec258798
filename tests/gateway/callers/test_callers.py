"""Who a call is of: each line of the table in docs/callers.md."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.callers.callers import Caller, Callers, derived_id, scope_of
from gateway.callers.hints import hints
from gateway.callers.signs import signs
from gateway.errors import InvalidRequest
from gateway.identity import Identity, resolve
from schemas.api_keys import ApiKey

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
    return of.caller(resolve(f"{path}/v1/chat/completions".encode()), key, signs(raw), hints(body), json.dumps(body))


def of(group: str, trajectory: str, source: str) -> tuple[Identity, str]:
    return Identity(group, trajectory), source


@pytest.mark.parametrize(
    ("path", "headers", "key", "body", "expected"),
    [
        ("/t/g", {}, TEAM, {}, of("g", "t", "path")),
        ("/t/g", ALONE, TEAM, {"prompt_cache_key": "c"}, of("g", "t", "path")),
        ("/t", {}, TEAM, {}, of("t", "t", "path")),
        ("/t", {}, TEAM, {"user": "u"}, of("t", "t", "path")),
        ("/t", {"x-claw-group": "g"}, None, {}, of("g", "t", "path")),
        ("/t", {"x-claw-trajectory": "t", **ALONE}, None, {}, of("t", "t", "path")),
        ("/x", ALONE, None, {}, of("x/s", "x/s", "session:x-session-id")),
        ("/x", ALONE, NAMED, {}, of("key=two:x/s", "key=two:x/s", "session:x-session-id")),
        ("/x", ALONE, TEAM, {}, of("team:x/s", "team:x/s", "session:x-session-id")),
        ("/x", {"x-claw-group": "g"}, None, {"prompt_cache_key": "c:7"}, of("g", "x/c", "session:prompt_cache_key")),
        ("", {"x-claw-trajectory": "t"}, TEAM, {}, of("t", "t", "headers")),
        ("", {"x-claw-trajectory": "t%2F1", "x-claw-group": "g", **ALONE}, TEAM, {}, of("g", "t/1", "headers")),
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
        caller(path, headers)
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


def test_a_call_without_the_tools_of_its_trajectory_is_a_side_call() -> None:
    """Whichever of two calls at once comes first; where nobody has tools, none is."""
    callers, tools = Callers(lambda *_: False), [{"type": "function"}]
    title, call = caller("/t/g", {}, TEAM, callers), caller("/t/g", {}, TEAM, callers, tools=tools)
    other = caller("/other/g", {}, TEAM, callers)
    assert (title.kind, call.kind, other.kind) == ("side", "main", "main")


@pytest.mark.parametrize(
    ("headers", "parent"),
    [
        ({"x-claw-parent": "p%2F1", "x-parent-session-id": "s0", **ALONE}, "p/1"),
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
    assert caller("/t/g", {"user-agent": agent}).client == client


def test_only_sessions_complete_by_silence() -> None:
    """What a path or a header names is completed by whoever named it."""
    messages = [{"role": "user", "content": "hi"}]
    assert caller("", ALONE).idle_s == caller("", messages=messages).idle_s == caller("", prompt="x").idle_s == 30.0
    assert caller("/t/g", ALONE).idle_s is caller("", {"x-claw-trajectory": "t"}).idle_s is None
    assert caller("", ALONE, None).idle_s is None
