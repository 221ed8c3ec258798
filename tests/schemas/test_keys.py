"""Keys: any id goes in, the same ids come out, and no two subjects share a key."""

from hypothesis import given
from hypothesis import strategies as st

from claw_r1.schemas.keys import group_key, parts, step_key, trajectory_key

IDS = st.text(alphabet=st.characters(), max_size=12) | st.sampled_from(
    ["", "/", "%2F", "a/b", "tokens", "\ud800", "ä\n"]
)


@given(IDS, IDS, IDS)
def test_ids_come_back_from_a_key(group: str, trajectory: str, call: str) -> None:
    """parts is the inverse of the key functions for any ids: slashes, percent signs, lone surrogates, empty."""
    assert parts(trajectory_key(group, trajectory)) == (group, trajectory)
    assert parts(step_key(group, trajectory, call)) == (group, trajectory, call)


@given(st.lists(st.tuples(IDS, IDS, IDS), min_size=2, max_size=2, unique=True))
def test_different_subjects_have_different_keys(subjects: list[tuple[str, str, str]]) -> None:
    """No choice of ids lets one step take another step's key."""
    first, second = subjects
    assert step_key(*first) != step_key(*second)


@given(IDS)
def test_a_group_key_is_the_group_id_in_utf8(group: str) -> None:
    """Tools that know the group id find its partition: the key has no encoding of its own."""
    assert group_key(group).decode("utf-8", "surrogatepass") == group
