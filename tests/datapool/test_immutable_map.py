"""A mapping that grows without being copied."""

from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool import immutable_map
from claw_r1.datapool.immutable_map import differing, grown

KEYS = st.integers(0, 2000).map(str)


@given(st.lists(st.tuples(KEYS, st.integers()), max_size=60), st.integers(immutable_map.COPIED_MAX - 20, 900))
def test_it_is_the_copy_that_it_stands_for_and_the_earlier_ones_stay(items, size):
    """However items come: new ones, and the same again; around the size where plain copies end."""
    plain: dict[str, int] = {str(number): number for number in range(size)}
    large, before = plain, (plain, plain)
    for key, value in items:
        before = large, {**plain}
        large, plain = grown(large, key, value), {**plain, key: value}
        assert dict(large.items()) == {key: large[key] for key in large} == plain
        assert (len(large), list(large.values()), large.keys()) == (len(plain), list(plain.values()), plain.keys())
        assert before[0] == before[1]
        assert large == plain
    assert "nobody" not in large


def test_a_large_one_shares_nearly_all_of_it():
    """Of ten thousand items a hundred are copied for one more, and now and then all."""
    large = grown({str(number): number for number in range(10_000)}, "x", 1)
    copied = 0
    for number in range(1000):
        before, large = large, grown(large, f"y{number}", number)
        copied += len(large._recent) if large._shared is before._shared else len(large)
    assert copied / 1000 < 200


@given(
    st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=60),
    st.integers(immutable_map.COPIED_MAX - 20, 900),
    st.data(),
)
def test_what_differs_is_what_another_object_stands_for(items, size, data):
    """Whatever lies between the two: nothing, some items, or a copy of all."""
    values = [object() for _ in range(4)]
    steps = [{str(number): values[0] for number in range(size)}]
    for key, value in items:
        steps.append(grown(steps[-1], key, values[value]))
    before, now = (steps[data.draw(st.integers(0, len(steps) - 1))] for _ in range(2))
    plain = dict(before.items())
    assert sorted(differing(before, now)) == sorted(key for key in now if plain.get(key) is not now[key])
