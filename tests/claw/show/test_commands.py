"""`claw version`: what two installations must have in common is said by one command."""

import json
import tomllib

import pytest

from claw_r1.claw.answers import emit
from claw_r1.claw.home import PROJECT
from claw_r1.claw.show.commands import version
from claw_r1.datapool import FOLD_VERSION


def test_it_is_that_of_the_project_the_newest_schema_and_the_folds(capsys: pytest.CaptureFixture[str]) -> None:
    emit(version(), as_json=True)
    package = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    ids = json.loads((PROJECT / "schemas/avro/ids.json").read_text())
    assert json.loads(capsys.readouterr().out) == {"package": package, "schemas": int(max(ids)), "fold": FOLD_VERSION}
