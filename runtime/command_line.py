"""The command line of a program, made of its settings classes: every field is a flag, and its docstring is the help.

Invariant: a flag wins over the environment, which wins over a file and the defaults. Nothing heavier than pydantic is imported
here, so that a program answers `--help` before it loads what it runs.
"""

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource
from pydantic_settings.exceptions import SettingsError

from claw_r1.runtime.flag_help import flag_of, help_of, placeholder

HELP_COLUMNS_MAX = 110
FLAG_COLUMNS_MAX = 32
EPILOG = "Each flag is also an environment variable: {}, in capitals, with _ for - and __ for a dot. The flag wins."
PROBLEMS = {"missing": "a value is required", "extra_forbidden": "there is no such setting"}
NULL = "None"  # what pydantic-settings takes for None on a command line
UNDECODABLE = re.compile(r'parsing value for field "(\w+)"')  # the words of pydantic-settings, as is the next
NO_MAPPING = re.compile(r"Parsing error encountered for ([\w.]+):")

Settings = TypeVar("Settings", bound=BaseSettings)


class SettingsRefused(Exception):
    """A setting cannot be used. The text is one line that names its flag and its variable, and shows no value."""


class CommandLine:
    """A parser with the flags of settings classes; a flag that is no setting is added to `parser` by hand.

    Where two classes have a field of the same name, the flag is that of the first; the other has its variable only. A
    class names the sections of its help in `FLAG_SECTIONS`: the first field of each section -> its heading.
    """

    def __init__(
        self,
        program: str,
        description: str,
        *classes: type[BaseSettings],
        parser: argparse.ArgumentParser | None = None,
    ) -> None:
        """`parser`: that of a subcommand, where the flags are not those of a whole program."""
        self.parser = parser or argparse.ArgumentParser(prog=program, allow_abbrev=False)
        self.parser.description, self.parser.usage = description, f"{program} [--flag value ...]"
        self.parser.formatter_class = _Help
        prefixes = dict.fromkeys(f"{settings.model_config.get('env_prefix')}<FLAG>" for settings in classes)
        self.parser.epilog = EPILOG.format(" or ".join(prefixes))
        self._owners: dict[str, type[BaseSettings]] = {}
        self._repeatable: set[str] = set()
        self._group: argparse._ArgumentGroup | None = None
        self._sources = {settings: self._source(settings) for settings in classes}

    def add_shorthand(self, settings: type[BaseSettings], name: str, about: str) -> None:
        """A flag that is no field: its class makes values of fields of it before it reads them."""
        self._owners[name] = settings
        self.parser.add_argument(flag_of(name), dest=name, metavar="TEXT", default=argparse.SUPPRESS, help=about)

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """The flags of a command line (None: this process's). One that does not exist ends the program, exit code 2."""
        return self.parser.parse_args(arguments)

    def read(self, settings: type[Settings], flags: argparse.Namespace, **initial: Any) -> Settings:
        """Settings from flags, environment and `initial` values of fields (of any type, hence Any).

        Whether `initial` wins over the environment is for the class to say. Raises SettingsRefused.
        """
        own = {name: value for name, value in vars(flags).items() if self._owners.get(name) is settings}
        try:
            return CliApp.run(settings, own, self._sources[settings], **initial)
        except ValidationError as error:
            raise SettingsRefused(first_problem(settings, error)) from error
        except SettingsError as error:
            raise SettingsRefused(_undecodable(settings, error)) from error

    def assign(self, flags: argparse.Namespace, assignments: Sequence[str]) -> None:
        """`spec.algorithm=rloo` as if the flag --spec.algorithm rloo stood there; null, and a list or mapping as JSON, too.

        Raises SettingsRefused when there is no such setting.
        """
        for assignment in assignments:
            name, equals, value = assignment.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or name not in self._owners:
                near = difflib.get_close_matches(name, self._owners, n=1)
                hint = (
                    f"; did you mean {near[0]}?" if near and equals else "" if equals else ": it is written NAME=VALUE"
                )
                raise SettingsRefused(f"--set {assignment}: there is no such setting{hint}")
            setattr(flags, name, [value] if name in self._repeatable else NULL if value == "null" else value)

    def _source(self, settings: type[BaseSettings]) -> CliSettingsSource[Any]:
        self._group = None
        return CliSettingsSource(
            settings,
            root_parser=self.parser,
            add_argument_method=partial(self._add, settings),
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_hide_none_type=True,
            cli_avoid_json=True,
        )

    def _add(self, settings: type[BaseSettings], container: Any, *flags: str, **options: Any) -> None:
        """`add_argument` of argparse for the flag of a field, with help for people."""
        name: str = options["dest"]
        if self._owners.setdefault(name, settings) is not settings:
            return
        if options.get("action") == "append":
            self._repeatable.add(name)
        if options["help"] is not argparse.SUPPRESS:
            options["help"] = help_of(settings, name, repeatable=options.get("action") == "append")
        if "metavar" in options:
            options["metavar"] = placeholder(settings, name, options["metavar"])
        (self._section(settings, name) if container is self.parser else container).add_argument(*flags, **options)

    def _section(self, settings: type[BaseSettings], name: str) -> "argparse._ArgumentGroup":
        headings: dict[str, str] = getattr(settings, "FLAG_SECTIONS", {})
        if self._group is None or name in headings:
            self._group = self.parser.add_argument_group(headings.get(name, "options"))
        return self._group


class _Help(argparse.HelpFormatter):
    """Wide enough to read, and no flag is broken at a hyphen."""

    def __init__(self, prog: str) -> None:
        columns = min(shutil.get_terminal_size().columns - 2, HELP_COLUMNS_MAX)
        super().__init__(prog, max_help_position=FLAG_COLUMNS_MAX, width=columns)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def first_problem(settings: type[BaseSettings], error: ValidationError) -> str:
    """Returns one line that names the setting's flag and variable, and shows no value."""
    problem = error.errors(include_url=False, include_input=False)[0]
    message = PROBLEMS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    return _named(settings, [str(name) for name in problem["loc"]], message) if problem["loc"] else message


def _undecodable(settings: type[BaseSettings], error: SettingsError) -> str:
    if mapping := NO_MAPPING.match(str(error)):
        return _named(settings, mapping[1].split("."), "a mapping is written as JSON, a plain one also NAME=VALUE")
    field = UNDECODABLE.search(str(error))
    return _named(settings, [field[1]], "the value is not valid JSON") if field else str(error)


def _named(settings: type[BaseSettings], path: Sequence[str], message: str) -> str:
    """The field as a file names it, as a flag and as a variable, and what is wrong with it."""
    config, name = settings.model_config, ".".join(path)
    if path[0] not in settings.model_fields:
        similar = difflib.get_close_matches(path[0], settings.model_fields, n=1)
        return f"{name}: {message}" + (f"; did you mean {similar[0]}?" if similar else "")
    variable = config.get("env_prefix", "") + (config.get("env_nested_delimiter") or "__").join(path).upper()
    return f"{name} ({flag_of(name)} or {variable}): {message}"
