"""`claw dataset` where there is nothing to list or to compare."""

from pathlib import Path

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.data.datasets import run_dataset
from claw_r1.claw.errors import CannotRun


def test_an_empty_list_says_where_datasets_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No table without rows: one line on stderr, here and in a directory that is named."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path / "home"))
    for directory in (None, tmp_path):
        assert emit(run_dataset("list", [], directory), as_json=False) == 0
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n"), "`claw export --out DIR`" in shown.err) == ("", 1, True)


@pytest.mark.parametrize(
    ("action", "names", "says"),
    [
        ("diff", ["only-one"], "the actions are `list` and `diff A B`"),
        ("show", [], "the actions are `list` and `diff A B`"),
        ("diff", ["a", "b"], "0 datasets have an id that begins with 'a'"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    action: str, names: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown action, one dataset too few, and an id that none has."""
    monkeypatch.setenv("CLAW_HOME", str(tmp_path))
    with pytest.raises(CannotRun) as refused:
        emit(run_dataset(action, names, None), as_json=False)
    assert says in str(refused.value)
