"""The numbers that a function of somebody's own returns: finite floats, whatever type they come in. Pure."""

import math
from typing import Any


def finite(value: Any) -> float:
    """Returns a number as a float: also a bool, and a scalar of numpy or torch (hence Any). Raises ValueError."""
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(type(value), "__float__"):
        raise ValueError(f"{value!r:.100} is no number")
    try:
        number = float(value)
    except (TypeError, OverflowError, RuntimeError) as error:  # the last is torch's, of several numbers
        raise ValueError(str(error)) from error
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number
