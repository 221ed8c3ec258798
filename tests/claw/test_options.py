"""Options declared once: a class of them is a command's parameters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from claw_r1.claw.answers import Answer
from claw_r1.claw.options import AsJson, Commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Two options of a toy command."""

    least: Annotated[int, typer.Option("--from", help="The lowest number.")] = 1
    tag: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None


received: list[tuple[str, Bounds, bool]] = []
toy = Commands()


@toy.command()
def count(name: str, bounds: Bounds, as_json: AsJson = False) -> int:
    """Counts."""
    received.append((name, bounds, as_json))
    return 0


def test_a_class_of_options_is_typed_field_by_field_and_received_whole() -> None:
    """Each field is one option, in its place among the others; the command gets the object, with its defaults."""
    received.clear()
    assert CliRunner().invoke(toy, ["x", "--from", "3", "--tag", "a", "--tag", "b", "--json"]).exit_code == 0
    assert CliRunner().invoke(toy, ["y"]).exit_code == 0
    assert received == [("x", Bounds(least=3, tag=["a", "b"]), True), ("y", Bounds(), False)]
    shown = CliRunner().invoke(toy, ["--help"]).stdout
    assert 0 < shown.index("--from") < shown.index("--tag") < shown.index("--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One option that has to be there."""

    out: Annotated[Path, typer.Option(help="Where to.")]


def test_a_field_without_a_default_is_an_option_that_is_asked_for() -> None:
    """By its name, with exit code 2; the help shows no default."""
    send = Commands()

    @send.command()
    def to(where: Destination) -> int:
        received.append((str(where.out), Bounds(), False))
        return 0

    without = CliRunner().invoke(send, [])
    assert without.exit_code == 2
    assert "Missing option '--out'" in without.output
    assert "MISSING" not in CliRunner().invoke(send, ["--help"]).output
    assert CliRunner().invoke(send, ["--out", "x"]).exit_code == 0
    assert received[-1][0] == "x"


def test_a_command_that_answers_has_the_option_json_and_one_that_gives_its_exit_code_has_not() -> None:
    """Both end with the code; a typo of an option is 2, as ever."""
    both = Commands()

    @both.command()
    def says(number: int) -> Answer:
        return Answer({"number": number}, f"it is {number}", code=1)

    @both.command()
    def does() -> int:
        return 3

    runner = CliRunner()
    as_json, as_text = runner.invoke(both, ["says", "7", "--json"]), runner.invoke(both, ["says", "7"])
    assert (as_json.stdout, as_json.exit_code) == ('{"number":7}\n', 1)
    assert (as_text.stdout, as_text.exit_code) == ("it is 7\n", 1)
    assert (runner.invoke(both, ["does"]).exit_code, runner.invoke(both, ["does", "--json"]).exit_code) == (3, 2)
