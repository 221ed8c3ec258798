"""Parsed JSON, which nobody has checked yet: its types, and what tells one value from another."""

import hashlib
from typing import Any

import orjson

Json = Any
"""A value that JSON can hold."""
JsonDict = dict[str, Any]
"""An object of JSON, by the names of its members."""


def json_digest(value: Json) -> str:
    """Returns the sha256 hex of a value, whatever the order of its objects' members.

    Raises TypeError for what is no JSON.
    """
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
