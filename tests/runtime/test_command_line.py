"""A command line made of settings classes: every field a flag, one order of precedence, one line for a mistake."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from pydantic import BaseModel, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.runtime.command_line import CommandLine, SettingsRefused


class Inner(BaseModel):
    size: int = Field(2, ge=1)


class Engine(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="ENGINE_", env_nested_delimiter="__", extra="forbid", use_attribute_docstrings=True
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"port": "listening", "queue_bytes_max": "limits"}

    port: int = Field(80, le=65535)
    """Where it listens, 100 % of the time."""
    password: str = Field("hunter2", repr=False)
    """What `port` wants to hear."""
    queue_bytes_max: int = 4 << 20
    wait_s: float = 1.5
    mode: Literal["fast", "slow"] = "fast"
    folder: Path | None = None
    is_loud: bool = True
    names: tuple[str, ...] = ()
    weights: Mapping[str, float] = {}
    inner: Inner = Inner()

    @model_validator(mode="after")
    def _fits(self) -> "Engine":
        if self.wait_s > 100:
            raise ValueError("wait_s is above 100: nobody waits that long")
        return self


class Log(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="LOG_")

    port: int = 9092
    address: str


def read(*arguments: str, **initial: object) -> Engine:
    line = CommandLine("program", "Does something.", Engine, Log)
    return line.read(Engine, line.parse(arguments), **initial)


def refusal(*arguments: str) -> str:
    with pytest.raises(SettingsRefused) as refused:
        read(*arguments)
    return str(refused.value)


def test_a_flag_wins_over_the_environment_which_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level overrides the one under it, field by field, in a nested model too."""
    monkeypatch.setenv("ENGINE_PORT", "81")
    monkeypatch.setenv("ENGINE_WAIT_S", "3")
    monkeypatch.setenv("ENGINE_INNER__SIZE", "5")
    settings = read("--port", "82")
    assert (settings.port, settings.wait_s, settings.mode, settings.inner.size) == (82, 3.0, "fast", 5)
    assert read("--inner.size", "6").inner.size == 6


def test_values_are_written_as_people_write_them() -> None:
    """Lists repeat a flag, switches have a `--no-` form, mappings are name=value, None is a word."""
    arguments = ["--names", "a", "--names", "b", "--no-is-loud", "--weights", "x=2", "--folder", "None"]
    settings = read(*arguments)
    assert (settings.names, settings.is_loud, settings.weights, settings.folder) == (
        ("a", "b"),
        False,
        {"x": 2.0},
        None,
    )


def test_a_name_that_two_classes_have_is_the_flag_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other class keeps its default or its variable, and never takes the value meant for the first."""
    line = CommandLine("program", "Does something.", Engine, Log)
    flags = line.parse(["--port", "82", "--address", "here"])
    assert (line.read(Engine, flags).port, line.read(Log, flags).port) == (82, 9092)
    monkeypatch.setenv("LOG_PORT", "9")
    assert line.read(Log, flags).port == 9


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--port", "70000"], "port (--port or ENGINE_PORT): Input should be less than or equal to 65535"),
        (["--inner.size", "0"], "inner.size (--inner.size or ENGINE_INNER__SIZE): Input should be greater than"),
        (["--wait-s", "101"], "wait_s is above 100: nobody waits that long"),
        (
            ["--weights", "hunter3"],
            "weights (--weights or ENGINE_WEIGHTS): a mapping is written as JSON, a plain one also NAME=VALUE",
        ),
        (["--weights", "{hunter3: 1}"], "weights (--weights or ENGINE_WEIGHTS): a mapping is written as JSON"),
        (["--mode", "hunter3"], "mode (--mode or ENGINE_MODE): Input should be 'fast' or 'slow'"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_flag_and_its_variable(arguments: list[str], line: str) -> None:
    """No traceback, no line break, and never the value, which may be a secret."""
    refused = refusal(*arguments)
    assert refused.startswith(line)
    assert "\n" not in refused
    assert "hunter3" not in refused


def test_a_variable_that_is_no_json_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list or mapping in the environment that cannot be parsed is a wrong value as any other."""
    monkeypatch.setenv("ENGINE_WEIGHTS", "{hunter3")
    assert refusal() == "weights (--weights or ENGINE_WEIGHTS): the value is not valid JSON"


def test_a_required_value_and_an_unknown_name_are_said() -> None:
    """What is missing is named by flag and variable; for what does not exist the nearest name is shown."""
    line = CommandLine("program", "Does something.", Engine, Log)
    with pytest.raises(SettingsRefused, match=r"address \(--address or LOG_ADDRESS\): a value is required"):
        line.read(Log, line.parse([]))
    with pytest.raises(SettingsRefused, match=r"ports: there is no such setting; did you mean port\?"):
        read(ports=1)


def test_a_flag_that_does_not_exist_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2; a shortened flag does not exist either."""
    for flag in ("--nope", "--fold"):
        with pytest.raises(SystemExit) as ended:
            read(flag, "x")
        assert ended.value.code == 2
        assert "unrecognized arguments" in capsys.readouterr().err


def test_help_gives_sections_units_defaults_and_no_secret() -> None:
    """The docstring is the help, other fields in it are named as flags, and a secret's default is not shown."""
    text = " ".join(CommandLine("program", "Does something.", Engine, Log).parser.format_help().split())
    assert "listening: --port NUMBER Where it listens, 100 % of the time. (default: 80)" in text
    assert (
        "--password TEXT What --port wants to hear. limits: --queue-bytes-max BYTES (default: 4194304 = 4 MiB)" in text
    )
    assert "--wait-s SECONDS (default: 1.5) --mode {fast,slow} (default: fast) --folder PATH" in text
    assert "--is-loud, --no-is-loud (default: on)" in text
    assert "--weights NAME=VALUE" in text
    assert "--address TEXT (required)" in text
    assert "hunter2" not in text


def test_a_subcommand_has_a_command_line_of_its_own() -> None:
    """Flags of a given parser are read as those of a program are."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    line = CommandLine("program run", "Runs.", Engine, parser=commands.add_parser("run"))
    assert line.read(Engine, parser.parse_args(["run", "--port", "7"])).port == 7
