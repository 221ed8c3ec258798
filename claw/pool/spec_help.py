"""`claw pool batch --explain`: every field of a batch spec and every preset, read from the spec itself."""

import shutil
import textwrap

import orjson

from claw_r1.claw.answers import Answer
from claw_r1.consumers.pool.spec_fields import knobs
from claw_r1.datapool.batch.spec import PRESETS

NAME_WIDTH = 20


def show_knobs() -> Answer:
    """Explains them."""
    return Answer({"knobs": knobs(), "presets": PRESETS}, as_text())


def as_text() -> str:
    """A paragraph per field, a line per preset."""
    width = min(shutil.get_terminal_size().columns, 120)
    lines = [f"{'preset':<{NAME_WIDTH}} one of those below: its fields are where the others start", ""]
    for knob in knobs():
        default = orjson.dumps(knob["default"]).decode()
        lines.append(f"{knob['name']:<{NAME_WIDTH}} {knob['takes']}; default {default}")
        lines += textwrap.wrap(knob["does"], width, initial_indent=" " * 4, subsequent_indent=" " * 4)
    lines += ["", "presets"]
    for name, fields in PRESETS.items():
        values = ", ".join(f"{field}: {value}" for field, value in fields.items())
        lines.append(f"    {name:<{NAME_WIDTH - 4}} {values}")
    return "\n".join(lines)
