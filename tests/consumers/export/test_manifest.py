"""A file that is no manifest, as a person who named the wrong one is told."""

from pathlib import Path

import pytest

from claw_r1.consumers.export.errors import ManifestInvalid
from claw_r1.consumers.export.manifest import NAME, load


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", r"no manifest of a dataset: prefix: Field required"),
        ('{"format": "new"}', r"no manifest of a dataset: format: Input should be a valid integer"),
        ("no JSON", r"no manifest of a dataset: Invalid JSON"),
    ],
)
def test_a_file_that_is_none_is_told_by_its_first_field(tmp_path: Path, text: str, problem: str) -> None:
    """Not by how many are wrong, nor by the name of a class."""
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ManifestInvalid, match=problem) as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_folder_without_one_is_told(tmp_path: Path) -> None:
    """What the system said, and where."""
    with pytest.raises(ManifestInvalid, match=rf"{NAME} cannot be read: No such file"):
        load(tmp_path)
