"""The state of an object as plain data, and back: what several processes share.

An object's ``shape`` names the attributes that are its state, each with a kind: what
checks and returns its value, read from a place that is hostile until parsed.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Kind = Callable[[Any], Any]

_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T", bound="Shaped")

# Nothing that is counted here is larger, and no list longer; more is damage.
_LARGEST = 1e15
_LONGEST = 1000

# Of an array, whole tenths are written down: that is as exact as it need be.
_PARTS = 10

# An array of numbers.
row = cast("Callable[[Iterable[float]], array[float]]", partial(array, "d"))


class Shaped(Protocol):
    def shape(self) -> dict[str, Any]: ...


def freeze(thing: Any) -> Any:
    if hasattr(thing, "shape"):
        return {name: freeze(getattr(thing, name)) for name in thing.shape()}
    if isinstance(thing, Enum):
        return thing.value
    if isinstance(thing, array):
        return [round(value * _PARTS) for value in thing]
    if isinstance(thing, list | tuple | deque):
        return [freeze(item) for item in thing]
    return thing


def thaw(thing: _T, data: Any) -> _T:
    """Give ``thing``, which is new, the state that was frozen. Raise ValueError for
    anything that ``freeze`` cannot have made."""
    if not isinstance(data, dict):
        raise ValueError(f"not the state of a {type(thing).__name__}: {data!r:.80}")
    for name, kind in thing.shape().items():
        try:
            value = kind(data[name])
        except KeyError:
            raise ValueError(f"{name} is missing") from None
        setattr(thing, name, value)
    return thing


def number(value: Any) -> float:
    """Infinite ones included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"not a number: {value!r:.80}")
    if _LARGEST < abs(value) < float("inf"):
        raise ValueError(f"out of range: {value!r:.80}")
    return float(value)


def finite(value: Any) -> float:
    if math.isinf(number(value)):
        raise ValueError(f"not finite: {value!r}")
    return float(value)


def amount(value: Any) -> float:
    if finite(value) < 0:
        raise ValueError(f"less than 0: {value!r}")
    return float(value)


def share(value: Any) -> float:
    if not 0 <= number(value) <= 1:
        raise ValueError(f"not from 0 to 1: {value!r}")
    return float(value)


def positive(value: Any) -> float:
    if number(value) <= 0:
        raise ValueError(f"not greater than 0: {value!r}")
    return float(value)


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"not a whole number: {value!r:.80}")
    if not 0 <= value <= _LARGEST:
        raise ValueError(f"out of range: {value!r:.80}")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"neither true nor false: {value!r:.80}")
    return value


def optional(kind: Kind) -> Kind:
    return lambda value: None if value is None else kind(value)


def one_of(names: type[_E]) -> Callable[[Any], _E]:
    return lambda value: names(value)


def part(new: Shaped) -> Kind:
    return lambda value: thaw(new, value)


def series(*kinds: Kind) -> Callable[[Any], list[Any]]:
    """A list of numbers or, with several kinds, of tuples."""

    def items(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > _LONGEST:
            raise ValueError(f"not a short list: {value!r:.80}")
        return [kinds[0](v) for v in value] if len(kinds) == 1 else _rows(value)

    def _rows(value: list[Any]) -> list[tuple[Any, ...]]:
        read = listing(*kinds)
        return [tuple(read(row)) for row in value]

    return items


def listing(*kinds: Kind) -> Callable[[Any], list[Any]]:
    """A list with one value of each kind."""

    def items(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(kinds):
            raise ValueError(f"not a list of {len(kinds)}: {value!r:.80}")
        return [kind(v) for kind, v in zip(kinds, value, strict=True)]

    return items


def row_of(count: int, kind: Kind) -> Callable[[Any], array[float]]:
    """Read an array of so many numbers."""
    read = series(number)

    def numbers(value: Any) -> array[float]:
        found = read(value)
        if len(found) != count:
            raise ValueError(f"not {count} numbers: {value!r:.80}")
        return row(kind(tenths / _PARTS) for tenths in found)

    return numbers
