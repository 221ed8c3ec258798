"""Options that several commands share, and `spread`, which gives a command a whole class of them at once."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

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

    A field reads as a parameter does: `limit: Annotated[int, typer.Option(...)] = 20`. The command gets the dataclass.
    """
    signature = inspect.signature(command)
    annotations = {name: each.annotation for name, each in signature.parameters.items()}
    classes = {name: cls for name, cls in annotations.items() if isinstance(cls, type) and is_dataclass(cls)}

    @functools.wraps(command)
    def with_objects(**values: Any) -> None:  # Any: values of every option's type
        objects = {
            name: options(**{field.name: values.pop(field.name) for field in fields(options)})
            for name, options in classes.items()
        }
        command(**values, **objects)

    parameters = [each for parameter in signature.parameters.values() for each in _parameters(parameter)]
    with_objects.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect reads it
    return with_objects


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
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )
