"""Settings of a resumed run that differ from those it ran with: refused where they change what the run is, else logged.

Invariant: every setting changes what a run is, except those that `TrainerSettings.MAY_CHANGE` names. So a change
of a new setting is refused by default.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import structlog
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from claw_r1.trainer.config.optimizer import EARLIER
from claw_r1.trainer.errors import SettingsInvalid

log = structlog.get_logger()

IN_CHECKPOINTS = frozenset({"optimizer.decay"})
"""Settings by which the optimizer's state is laid out."""
Values = Mapping[str, Any]  # Any: JSON values of any field


def check_changes(
    config: str, settings: BaseModel, *, run_id: str, may_change: frozenset[str], allowed: tuple[str, ...]
) -> None:
    """Raises SettingsInvalid in one line that names each setting which may not differ from `config` (JSON of the earlier
    ones), unless `allowed` names it or its parent. Those `IN_CHECKPOINTS` cannot be allowed."""
    _check_names(allowed, dict(leaves(type(settings), settings.model_dump(mode="json"))))
    changes = changes_since(config, settings)
    _check_layout(changes, run_id)
    refused = {name: change for name, change in changes.items() if not _covers({*may_change, *allowed}, name)}
    if refused:
        named = ", ".join(f"{name} was {was!r} and is {now!r}" for name, (was, now) in refused.items())
        flags = " ".join(f"--allow-change {name}" for name in refused)
        raise SettingsInvalid(
            f"run {run_id} would continue as another run: {named}. Restore its settings, or continue with {flags}"
        )
    for name, (was, now) in changes.items():
        log.warning("setting_changed", setting=name, before=was, now=now)


def _check_layout(changes: Mapping[str, tuple[Any, Any]], run_id: str) -> None:  # Any: JSON values
    for name in IN_CHECKPOINTS & changes.keys():
        was, now = changes[name]
        why = f"run {run_id} has checkpoints of {name} {was}, and {now} cannot load them: say {name}: {was}"
        raise SettingsInvalid(f"{why}, or begin another run_id with the newest export as model_dir")


def changes_since(config: str, settings: BaseModel) -> dict[str, tuple[Any, Any]]:  # Any: JSON values
    """Setting -> (value in `config`, present value), for each that differs."""
    before = dict(leaves(type(settings), json.loads(config)))
    after = dict(leaves(type(settings), settings.model_dump(mode="json")))
    return {name: (before[name], value) for name, value in after.items() if before[name] != value}


def leaves(model: type[BaseModel], values: Values, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(`spec.group_size`, value) of every field of settings and of the settings in them; the default where it is missing."""
    for name, field in model.model_fields.items():
        value = values[name] if name in values else _default(field)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, values.get(name) or {}, f"{prefix}{name}.")
        else:
            yield prefix + name, str(Path(value).absolute()) if value and _is_path(field) else value


def _default(field: FieldInfo) -> Any:  # Any: a JSON value
    if isinstance(extra := field.json_schema_extra, dict) and EARLIER in extra:
        return extra[EARLIER]
    return None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True))


def _is_path(field: FieldInfo) -> bool:
    return Path in (field.annotation, *get_args(field.annotation))


def _covers(names: set[str], name: str) -> bool:
    """Returns whether a name is this one or its parent, as `spec` holds `spec.group_size`."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _check_names(allowed: tuple[str, ...], settings: Values) -> None:
    for name in allowed:
        if not any(_covers({name}, setting) for setting in settings):
            near = difflib.get_close_matches(name, settings, n=1)
            raise SettingsInvalid(
                f"allow_change: there is no setting {name}" + (f"; did you mean {near[0]}?" if near else "")
            )
