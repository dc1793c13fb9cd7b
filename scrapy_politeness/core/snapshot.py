"""The state of an object as plain data, and back: what several processes share.

An object's ``shape`` names the attributes that are its state, each with a kind: a
function that checks and returns a value from outside, which is hostile until parsed.
In a dataclass that is a ``State``, a ``kept`` field has its kind beside it.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import field, fields
from enum import Enum
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    Kind = Callable[[Any], Any]

_E = TypeVar("_E", bound=Enum)
_V = TypeVar("_V")
_T = TypeVar("_T", bound="Shaped")

# No number is larger, no time later, in seconds, and no list longer; more is damage.
_LARGEST = 1e15
_LATEST = 1e12
_LONGEST = 1000

_KIND = "kind"

# Of an array, whole tenths are saved, which is exact enough, and each as the difference
# from the one before, which is short. Zeros at the end are left out.
_PARTS = 10

# Other numbers are saved with this many digits: a time since 1970 is exact to
# hundredths of a second.
_DIGITS = 12

# An array of numbers.
row = cast("Callable[[Iterable[float]], array[float]]", partial(array, "d"))


class Shaped(Protocol):
    def shape(self) -> Mapping[str, Any]: ...


def kept(kind: Callable[[Any], _V], default: _V) -> _V:
    """Return a field that is part of the state. A list is copied."""
    first = default.copy if isinstance(default, list) else lambda: default
    made = field(default_factory=first, init=False, metadata={_KIND: kind})
    return cast("_V", made)


def kept_part(make: Callable[[], _T]) -> _T:
    """Return a field that holds what ``make`` returns, whose state is part of this
    one's."""
    return field(default_factory=make, init=False, metadata={_KIND: new_part(make)})


class State:
    """For a dataclass whose state is what its ``kept`` fields hold."""

    __slots__ = ()

    def shape(self) -> Mapping[str, Any]:
        # Classes are hashable, which mypy does not believe.
        return _kinds_of(cast("Hashable", type(self)))


@cache
def _kinds_of(dataclass: Any) -> Mapping[str, Kind]:
    every = fields(dataclass)
    return {f.name: f.metadata[_KIND] for f in every if _KIND in f.metadata}


def freeze(thing: Any) -> Any:
    if hasattr(thing, "shape"):
        return {name: freeze(getattr(thing, name)) for name in thing.shape()}
    if isinstance(thing, Enum):
        return thing.value
    if isinstance(thing, array):
        tenths = [round(value * _PARTS) for value in thing]
        steps = [here - before for before, here in pairwise((0, *tenths))]
        while steps and not steps[-1]:
            steps.pop()
        return steps
    if isinstance(thing, list | tuple | deque):
        return [freeze(item) for item in thing]
    if isinstance(thing, float):
        return float(f"{thing:.{_DIGITS}g}")
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


def number(
    value: Any, low: float = -math.inf, high: float = math.inf, *, finite: bool = False
) -> float:
    """Infinite ones included, unless they are to be ``finite``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"not a number: {value!r:.80}")
    # Compared, not converted: an integer may be too large for a float.
    is_large = abs(value) > _LARGEST and (finite or abs(value) != math.inf)
    if is_large or not low <= value <= high:
        raise ValueError(f"out of range: {value!r:.80}")
    return float(value)


finite = partial(number, finite=True)
amount = partial(number, low=0.0, finite=True)
share = partial(number, low=0.0, high=1.0)
# The smallest positive number there is.
positive_or_infinite = partial(number, low=math.ulp(0.0))
positive = partial(positive_or_infinite, finite=True)


def when(value: Any, otherwise: float = 0.0) -> float:
    """A time, or ``otherwise``."""
    return number(value) if value == otherwise else number(value, -_LATEST, _LATEST)


when_or_not_yet = partial(when, otherwise=math.inf)
when_or_never = partial(when, otherwise=-math.inf)


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


def new_part(make: Callable[[], Shaped]) -> Kind:
    return lambda value: thaw(make(), value)


def series(*kinds: Kind) -> Callable[[Any], list[Any]]:
    """A list of numbers or, with several kinds, of tuples."""
    read = kinds[0] if len(kinds) == 1 else _tuple_of(kinds)

    def items(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > _LONGEST:
            raise ValueError(f"not a short list: {value!r:.80}")
        return [read(item) for item in value]

    return items


def listing(*kinds: Kind) -> Callable[[Any], list[Any]]:
    """A list with one value of each kind."""
    read = _tuple_of(kinds)
    return lambda value: list(read(value))


def _tuple_of(kinds: tuple[Kind, ...]) -> Callable[[Any], tuple[Any, ...]]:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(kinds):
            raise ValueError(f"not a list of {len(kinds)}: {value!r:.80}")
        return tuple(kind(v) for kind, v in zip(kinds, value, strict=True))

    return read


def row_of(count: int, kind: Kind) -> Callable[[Any], array[float]]:
    """Read an array of ``count`` numbers; differences that are left out are 0."""

    def read(value: Any) -> array[float]:
        if not isinstance(value, list) or len(value) > count:
            raise ValueError(f"not a list of at most {count}: {value!r:.80}")
        steps = [*map(number, value), *[0.0] * (count - len(value))]
        return row(kind(tenths / _PARTS) for tenths in accumulate(steps))

    return read
