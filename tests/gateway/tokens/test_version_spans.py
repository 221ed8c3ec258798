"""Which version sampled which tokens, as the worker says it."""

import pytest

from claw_r1.gateway.tokens.version_spans import Spans, spans_of
from tests.gateway.house import span


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
