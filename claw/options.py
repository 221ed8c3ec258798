"""Options that several commands share, and `Commands`, which makes a command of a function and
prints what it answers."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, get_type_hints

import typer

from claw_r1.claw.answers import Answers, emit
from claw_r1.claw.errors import CannotRun

Function = TypeVar("Function", bound=Callable[..., int | Answers])
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object (or JSON lines) on stdout.")]
Prefix = Annotated[str, typer.Option(envvar="CLAW_LOG_PREFIX", help="Prefix of the topics.")]
GenerationOption = Annotated[int, typer.Option(envvar="CLAW_LOG_GENERATION", min=1, help="Generation of the pool.")]
DeviceOption = Annotated[
    str,
    typer.Option(
        envvar="CLAW_DEVICE",
        help="auto, cpu or cuda, for trainer and workers; auto leaves it to the settings of each.",
    ),
]
ServesDashboard = Annotated[
    bool,
    typer.Option("--dashboard", help="Also serve the dashboard, at port 8200 or, where that is taken, a free one."),
]
TlsFolder = Annotated[
    Path | None,
    typer.Option(
        envvar="CLAW_TLS_DIR",
        help="Folder of certificates and a password, made where it is empty: Kafka and every door of the stack then take TLS only.",
    ),
]
AS_JSON = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
"""The last option of every command that answers."""
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Context settings of a command that hands all its arguments on, `--help` included."""


class Commands(typer.Typer):
    """A group of commands. Each is a function that returns its exit code or `Answers`; with these it has the option
    `--json`.

    A parameter of a dataclass's type becomes one option per field, so that each option is declared once. A field reads as a
    parameter does: `limit: Annotated[int, typer.Option(...)] = 20`; a sentence instead of the option is its help. The function
    gets the dataclass; a ValueError of its making is CannotRun.
    """

    def __init__(self, **settings: Any) -> None:  # Any: as `Typer`
        super().__init__(no_args_is_help=True, add_completion=False, **settings)

    def command(self, *names: Any, **settings: Any) -> Callable[[Function], Function]:  # Any: as `Typer.command`
        """Registers the function under its own name, or the first of `names`."""
        register = super().command(*names, **settings)

        def registered(function: Function) -> Function:
            register(_command_of(function))
            return function

        return registered


def _command_of(function: Callable[..., int | Answers]) -> Callable[..., None]:
    """The function with one parameter per option, which prints what the function answers and exits."""
    signature = inspect.signature(function)
    annotations = {name: each.annotation for name, each in signature.parameters.items()}
    classes = {name: cls for name, cls in annotations.items() if isinstance(cls, type) and is_dataclass(cls)}
    asks = "as_json" in annotations  # a function whose answer depends on it

    @functools.wraps(function)
    def command(**values: Any) -> None:  # Any: values of every option's type
        as_json = values.get("as_json", False) if asks else values.pop("as_json", False)
        objects = {name: _made(options, values) for name, options in classes.items()}
        result = function(**values, **objects)
        raise typer.Exit(result if isinstance(result, int) else emit(result, as_json=as_json))

    parameters = [each for parameter in signature.parameters.values() for each in _parameters(parameter)]
    if signature.return_annotation not in (int, NoReturn) and not asks:
        parameters.append(AS_JSON)
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect reads it
    return command


def _made(options: type, values: dict[str, Any]) -> object:
    """The object of these options, which are taken out of `values`. Raises CannotRun."""
    own = {}
    for field in fields(options):
        value = values.pop(field.name)
        own[field.name] = tuple(value) if isinstance(field.default, tuple) else value
    try:
        return options(**own)
    except ValueError as error:
        raise CannotRun(str(error)) from error


def _parameters(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The parameter itself, or one for each field of its dataclass, in the order of the fields."""
    options = parameter.annotation
    if not is_dataclass(options):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        default = (
            inspect.Parameter.empty if field.default is MISSING else field.default
        )  # a field without one is asked for
        hint = hints[field.name]
        if isinstance(help_text := getattr(hint, "__metadata__", (None,))[0], str):
            hint, default = _described(field.name, hint.__origin__, help_text, default)
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _described(name: str, kind: Any, help_text: str, default: Any) -> tuple[Any, Any]:  # Any: types, and their values
    """The annotation and the default of an option that has a help text alone: a flag has two names, a tuple is repeated."""
    word = name.replace("_", "-")
    if kind == bool | None:
        return Annotated[kind, typer.Option(f"--{word}/--not-{word}", help=help_text)], default
    if kind == tuple[str, ...]:
        return Annotated[list[str], typer.Option(f"--{word}", help=help_text)], list(default)
    return Annotated[kind, typer.Option(help=help_text)], default
