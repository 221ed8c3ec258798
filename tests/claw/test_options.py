"""Options declared once: a class of them is a command's parameters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from claw_r1.claw.options import AsJson, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Two options of a toy command."""

    least: Annotated[int, typer.Option("--from", help="The lowest number.")] = 1
    tag: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None


received: list[tuple[str, Bounds, bool]] = []
toy = typer.Typer()


@toy.command()
@spread
def count(name: str, bounds: Bounds, as_json: AsJson = False) -> None:
    """Counts."""
    received.append((name, bounds, as_json))


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
    send = typer.Typer()

    @send.command()
    @spread
    def to(where: Destination) -> None:
        received.append((str(where.out), Bounds(), False))

    without = CliRunner().invoke(send, [])
    assert without.exit_code == 2
    assert "Missing option '--out'" in without.output
    assert "MISSING" not in CliRunner().invoke(send, ["--help"]).output
    assert CliRunner().invoke(send, ["--out", "x"]).exit_code == 0
    assert received[-1][0] == "x"
