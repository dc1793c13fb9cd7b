"""Text for people, in which nothing from outside can do harm."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_politeness.core.learned import Learned

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))

# The lowest rates that are easier to read per second than per minute, and per minute
# than per hour.
_PER_SECOND = 0.1
_PER_MINUTE = 0.1 / 60

# A limit that may differ by a larger factor than e to this is not known.
_KNOWN = 0.2


def escaped(text: str) -> str:
    """Names come from outside: none may control a terminal, or run right to left."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def width(text: str) -> int:
    """Return how many terminal columns a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, columns: int) -> str:
    """Return the text, escaped, and cut to that width."""
    text = escaped(text)
    if width(text) <= columns:
        return text
    while width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def duration(seconds: float) -> str:
    for (unit, length), (smaller, part) in pairwise(_UNITS):
        if seconds >= length:
            rest = int(seconds % length // part)
            more = f" {rest} {smaller}" if rest else ""
            return f"{int(seconds // length)} {unit}{more}"
    return f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(share: float) -> str:
    """With one digit, since no more is known; with two from 10 % on."""
    number = 100 * share
    return f"{number:.1g} %" if number < 9.5 else f"{number:.0f} %"


def number(count: float) -> str:
    return f"{count:,}"


def interval(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"


class Unit(NamedTuple):
    """Requests per ``seconds``."""

    seconds: float
    short: str
    long: str


def rate_unit(highest: float) -> Unit:
    """Return the unit in which rates up to this one are easiest to read."""
    if highest >= _PER_SECOND:
        return Unit(1.0, "/s", "second")
    if highest >= _PER_MINUTE:
        return Unit(60.0, "/min", "minute")
    return Unit(3600.0, "/h", "hour")


def rate(per_second: float) -> str:
    unit = rate_unit(per_second or 1.0)
    return f"{per_second * unit.seconds:.3g}{unit.short}"


def limits(learned: Learned) -> Iterator[str]:
    """Say what an earlier run learned about a host."""
    if learned.ceiling is not None and learned.spread is None:
        yield f"the host served {rate(learned.ceiling)}, and no limit was found"
    elif learned.ceiling is not None and learned.spread is not None:
        verb = "allows" if learned.spread < _KNOWN else "seems to allow about"
        yield f"the host {verb} {rate(learned.ceiling)}"
    if learned.concurrency is not None:
        most = counted(learned.concurrency, "request")
        yield f"the host seems to take {most} at once"
