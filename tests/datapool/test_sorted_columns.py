"""Columns against a dict that is sorted anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool import sorted_columns
from claw_r1.datapool.sorted_columns import Columns

EDITS = st.lists(
    st.tuples(st.sets(st.integers(0, 40)), st.dictionaries(st.integers(0, 40), st.binary(max_size=2), max_size=30)),
    max_size=8,
)


@given(EDITS, st.integers(1, 5))
def test_columns_list_what_those_would_that_are_made_at_once(edits, leaf_keys):
    """Whatever comes, goes and is replaced; and the earlier ones stay as they were."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_columns, "LEAF_KEYS", leaf_keys)
        edited, plain = Columns(), {}
        for removed, come in edits:
            gone = {f"{key:02}" for key in removed} & plain.keys()
            new = {f"{key:02}": (cell,) for key, cell in come.items() if f"{key:02}" not in gone}
            before, listed = edited, edited.column(0)
            edited = edited.changed(gone, new)
            plain = {key: cells for key, cells in plain.items() if key not in gone} | new
            cells = [plain[key][0] for key in sorted(plain)]
            assert (before.column(0), edited.keys(), len(edited)) == (listed, sorted(plain), len(plain))
            assert edited.column(0) == tuple(cells)
            assert b"".join(edited.joined(0)) == b"".join(edited.joined(0)) == b"".join(cells)
            assert {f"{key:02}": edited.get(f"{key:02}") for key in range(42)} == {
                f"{key:02}": plain.get(f"{key:02}") for key in range(42)
            }
            number, pieces = edited.packed(0, len(plain) // 2)
            assert (number, b"".join(pieces)) == (len(plain) // 2, b"".join(cells[: len(plain) // 2]))
