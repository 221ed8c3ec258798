"""The form in which each standard type is written as parts and made of them again. Making calls no code but these
constructors."""

import io
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from pathlib import PosixPath
from typing import Any, NamedTuple
from uuid import UUID

PartList = list[Any]
Fill = Callable[[Any, PartList], None]


class Form(NamedTuple):
    """One type on the wire."""

    tag: str
    kind: type
    take: Callable[[Any], Iterable[Any]]
    """The parts of a value."""
    make: Callable[..., Any]
    """The value of its parts; where there is a `fill`, the one that it fills, of the first two parts as they
    were written."""
    types: tuple[type, ...] | None = None
    """Exact types of the parts; None: any number of any values."""
    fill: Fill | None = None
    """For what can hold itself."""


def _items(kind: type) -> Callable[[Any], Iterator[Any]]:
    """Keys and values in turn, in the order of `kind`."""
    pairs: Callable[[Any], Iterable[Any]] = kind.items  # type: ignore[attr-defined]  # of a dict
    return lambda value: chain.from_iterable(pairs(value))


def _fill_dict(value: Any, parts: PartList) -> None:
    for key, item in zip(parts[::2], parts[1::2], strict=True):
        value[key] = item


def _fill_default(value: Any, parts: PartList) -> None:
    value.default_factory = parts[0]
    _fill_dict(value, parts[1:])


def _dict(parts: PartList) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _buffer(kind: type) -> Callable[..., Any]:
    def make(text: Any, position: int) -> Any:
        buffer = kind(bytes.fromhex(text) if kind is io.BytesIO else text)
        buffer.seek(position)
        return buffer

    return make


def _nothing(value: Any, parts: PartList) -> None:
    """For a value complete when made."""


FORMS = (
    Form("list", list, list.__iter__, lambda *_: [], None, list.extend),
    Form("dict", dict, _items(dict), lambda *_: {}, None, _fill_dict),
    Form("set", set, set.__iter__, lambda *_: set(), None, set.update),
    Form("tuple", tuple, tuple.__iter__, lambda *parts: parts),
    Form("frozenset", frozenset, frozenset.__iter__, lambda *parts: frozenset(parts)),
    Form("int", int, lambda value: [hex(value)], lambda text: int(text, 16), (str,)),
    Form("bytes", bytes, lambda value: [value.hex()], bytes.fromhex, (str,)),
    Form("bytearray", bytearray, lambda value: [value.hex()], bytearray.fromhex, (str,), _nothing),
    Form("complex", complex, lambda value: [value.real, value.imag], complex, (float, float)),
    Form("range", range, lambda value: [value.start, value.stop, value.step], range, (int, int, int)),
    Form("slice", slice, lambda value: [value.start, value.stop, value.step], slice),
    Form("ellipsis", type(...), lambda _: [], lambda: ..., ()),
    Form("Counter", Counter, _items(dict), lambda *_: Counter(), None, _fill_dict),
    Form("OrderedDict", OrderedDict, _items(OrderedDict), lambda *_: OrderedDict(), None, _fill_dict),
    Form(
        "defaultdict",
        defaultdict,
        lambda value: chain([value.default_factory], _items(dict)(value)),
        lambda *_: defaultdict(),
        None,
        _fill_default,
    ),
    Form(
        "deque",
        deque,
        lambda value: chain([value.maxlen], value),
        lambda limit, *_: deque(maxlen=limit),
        None,
        lambda value, parts: value.extend(parts[1:]),
    ),
    Form("keys", type({}.keys()), iter, lambda *parts: dict.fromkeys(parts).keys()),
    Form("values", type({}.values()), iter, lambda *parts: dict(enumerate(parts)).values()),
    Form("items", type({}.items()), chain.from_iterable, lambda *parts: _dict(list(parts)).items()),
    Form("Decimal", Decimal, lambda value: [str(value)], Decimal, (str,)),
    Form("Fraction", Fraction, lambda value: [value.numerator, value.denominator], Fraction, (int, int)),
    Form("datetime", datetime, lambda value: [value.isoformat()], datetime.fromisoformat, (str,)),
    Form("date", date, lambda value: [value.isoformat()], date.fromisoformat, (str,)),
    Form("time", time, lambda value: [value.isoformat()], time.fromisoformat, (str,)),
    Form(
        "timedelta",
        timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        timedelta,
        (int, int, int),
    ),
    Form("timezone", timezone, lambda value: [value.utcoffset(None)], timezone, (timedelta,)),
    Form("UUID", UUID, lambda value: [value.hex], UUID, (str,)),
    Form("Path", PosixPath, lambda value: [str(value)], PosixPath, (str,)),
    Form(
        "StringIO",
        io.StringIO,
        lambda value: [value.getvalue(), value.tell()],
        _buffer(io.StringIO),
        (str, int),
        _nothing,
    ),
    Form(
        "BytesIO",
        io.BytesIO,
        lambda value: [value.getvalue().hex(), value.tell()],
        _buffer(io.BytesIO),
        (str, int),
        _nothing,
    ),
)
"""The forms, each before the types that are built on it, as `kind_of` needs it, but for those of `EXACT`."""
EXACT = {form.kind: form for form in FORMS}
TAGS = {form.tag: form for form in FORMS}
NEAREST = sorted(FORMS, key=lambda form: -len(form.kind.__mro__))
"""The most special first."""
