"""The schemas of others beside this file."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def schema(name: str) -> Any:  # a JSON schema, or several by kind
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text())
