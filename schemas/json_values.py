"""The types of parsed JSON, which nobody has checked yet."""

from typing import Any

Json = Any
"""A value that JSON can hold."""
JsonDict = dict[str, Any]
"""An object of JSON, by the names of its members."""
