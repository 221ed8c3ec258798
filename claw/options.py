"""Options that several commands share, and `spread`, which gives a command a whole class of them at once."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from claw_r1.claw.errors import CannotRun

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object (or JSON lines) on stdout.")]
Prefix = Annotated[str, typer.Option(envvar="CLAW_LOG_PREFIX", help="Prefix of the topics.")]
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
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Context settings of a command that hands all its arguments on, `--help` included."""


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters of a dataclass's type become one option per field: each option is declared once.

    A field reads as a parameter does: `limit: Annotated[int, typer.Option(...)] = 20`; a sentence instead of the option is its
    help. The command gets the dataclass; a ValueError of its making is CannotRun.
    """
    signature = inspect.signature(command)
    annotations = {name: each.annotation for name, each in signature.parameters.items()}
    classes = {name: cls for name, cls in annotations.items() if isinstance(cls, type) and is_dataclass(cls)}

    @functools.wraps(command)
    def with_objects(**values: Any) -> None:  # Any: values of every option's type
        objects = {name: _made(options, values) for name, options in classes.items()}
        command(**values, **objects)

    parameters = [each for parameter in signature.parameters.values() for each in _parameters(parameter)]
    with_objects.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect reads it
    return with_objects


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
