"""Columns of text for a terminal, or wherever letters are of one width."""

from collections.abc import Iterator, Sequence


def table(cells: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of columns, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
