"""Where the ticks of an axis are, and what they say."""

from __future__ import annotations

import math
from typing import NamedTuple

from scrapy_politeness.core.text import rate_unit

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0

# Steps that people count time in.
_TIME_STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(_MINUTE * n for n in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 5, 10, 20, 50, 100)),
)
_TIME_UNITS = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s"))
_MOST_TIME_TICKS = 7


class Tick(NamedTuple):
    at: float
    label: str


def time_ticks(seconds: float) -> list[Tick]:
    fitting = (s for s in _TIME_STEPS if seconds / s < _MOST_TIME_TICKS)
    longest = _TIME_STEPS[-1]
    # A report that somebody has changed may last for any time.
    step = next(fitting, longest * math.ceil(seconds / longest / _MOST_TIME_TICKS))
    size, unit = next(unit for unit in _TIME_UNITS if step >= unit[0])
    count = int(seconds / step) + 1
    return [Tick(n * step, f"{n * step / size:g} {unit}") for n in range(count)]


def rate_ticks(highest: float) -> list[Tick]:
    """The last tick is not lower than the highest rate."""
    unit = rate_unit(highest)
    wanted = max(highest * unit.seconds, 1e-9) / 3
    power = 10 ** math.floor(math.log10(wanted))
    step = next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= wanted)
    count = math.ceil(highest * unit.seconds / step - 1e-9)
    return [
        Tick(n * step / unit.seconds, f"{n * step:g}{unit.short}" if n else "0")
        for n in range(count + 1)
    ]
