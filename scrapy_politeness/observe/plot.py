"""One plot: rates over time, as SVG, with its labels as HTML around it.

The drawing is stretched to the width of the page. Text in it would be stretched, too,
so the labels are put around it.
"""

from __future__ import annotations

import math
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.text import duration, rate_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_politeness.observe.report import Series

_WIDTH, _HEIGHT = 1000, 200

# Limits further above what was sent are cut off, or they would flatten the rest.
_MOST_ABOVE = 1.6
_HEADROOM = 1.08

# The stroke width of the dots for refusals.
_SMALL_DOT, _LARGE_DOT = 3.0, 9.0

# The opacity of a pause that is short against its bucket.
_FAINT = 0.07

# Labels this near to the right end are put to the left of their ticks.
_LAST = 0.96
_NEAR_END = 0.75

# Seconds. Most crawls begin with slots that send in step.
_SMOOTH = 1.0

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
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


def _rate_ticks(highest: float) -> list[Tick]:
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


class Plot:
    """``smooth`` shows what is sent per second instead of per bucket: for series of
    several slots. ``rate_ticks`` go from the lower end of the drawing to the upper."""

    def __init__(
        self, series: Series, seconds: float, name: str, *, smooth: bool = False
    ) -> None:
        self._series = series
        self._seconds = max(seconds, series.width)
        self._name = name
        self._sent = self._rates(round(_SMOOTH / series.width) if smooth else 1)
        self._most_sent = max(self._sent, default=0.0)
        limits = [r for r in (*series.rate, *series.ceiling) if r is not None]
        shown = [r for r in limits if r <= _MOST_ABOVE * self._most_sent]
        self.rate_ticks = _rate_ticks(_HEADROOM * max(self._most_sent, *shown, 1e-4))
        self._highest = self.rate_ticks[-1].at

    def html(self) -> str:
        rates = "".join(
            f'<span style="top:{100 * (1 - tick.at / self._highest):.4g}%">'
            f"{tick.label}</span>"
            for tick in self.rate_ticks
        )
        times = "".join(
            f'<span style="left:{100 * tick.at / self._seconds:.4g}%"'
            f"{self._class(number, tick)}>{tick.label}</span>"
            for number, tick in enumerate(time_ticks(self._seconds))
        )
        return (
            f'<div class="plot"><div class="ys" aria-hidden="true">{rates}</div>'
            f'{self.svg()}<div class="xs" aria-hidden="true">{times}</div></div>'
        )

    def svg(self, attributes: str = "") -> str:
        """The drawing alone; ``attributes`` place it in another one."""
        series = self._series
        label = escape(f"Requests over time, {self._name}: {self._summary()}")
        grid = "".join(f"M0,{self._y(tick.at)}H{_WIDTH}" for tick in self.rate_ticks)
        return (
            f'<svg {attributes}role="img" aria-label="{label}" '
            f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
            f'<path class="grid" d="{grid}"/>{self._pauses()}'
            f'<path class="sent" d="{self._area(self._sent)}"/>'
            f'<path class="allowed" d="{self._line(series.rate)}"/>'
            f'<path class="ceiling" d="{self._line(series.ceiling)}"/>'
            f"{self._refusals()}</svg>"
        )

    def _rates(self, buckets: int) -> list[float]:
        """Return requests per second, over that many buckets around each."""
        width, sent = self._series.width, self._series.sent
        # Of the last bucket, only a part belongs to the crawl.
        ends = [min(n * width, self._seconds) for n in range(len(sent) + 1)]
        rates = []
        for n in range(len(sent)):
            first = max(0, n - buckets // 2)
            last = min(len(sent), max(first + buckets, n + 1))
            spent = ends[last] - ends[first]
            rates.append(sum(sent[first:last]) / spent if spent > 0 else 0.0)
        return rates

    def _x(self, bucket: float) -> str:
        seconds = bucket * self._series.width
        return f"{_WIDTH * min(seconds / self._seconds, 1.0):.5g}"

    def _y(self, rate: float) -> str:
        return f"{_HEIGHT * (1 - min(rate / self._highest, 1.1)):.4g}"

    def _area(self, row: Sequence[float]) -> str:
        steps = (f"V{self._y(value)}H{self._x(end)}" for _, end, value in _runs(row))
        return f"M0,{_HEIGHT}{''.join(steps)}V{_HEIGHT}Z"

    def _line(self, row: Sequence[float | None]) -> str:
        path, drawn_to = "", -1
        for start, end, value in _runs(row):
            y = self._y(value)
            path += f"V{y}" if start == drawn_to else f"M{self._x(start)},{y}"
            path += f"H{self._x(end)}"
            drawn_to = end
        return path

    def _pauses(self) -> str:
        width, silent = self._series.width, self._series.silent
        shares = [max(_FAINT, round(s / width, 1)) if s else None for s in silent]
        return "".join(
            f'<rect class="pause" x="{self._x(start)}" y="0" '
            f'width="{float(self._x(end)) - float(self._x(start)):.4g}" '
            f'height="{_HEIGHT}" opacity="{min(share, 1):.2g}"/>'
            for start, end, share in _runs(shares)
        )

    def _refusals(self) -> str:
        """A bucket of a long crawl has many requests: a refusal among hundreds is a
        small dot."""
        width, sent = self._series.width, self._series.sent
        dots = ""
        for n, count in enumerate(self._series.refused):
            if count:
                share = min(1.0, 5 * count / max(sent[n], 1.0))
                size = _SMALL_DOT + share * (_LARGE_DOT - _SMALL_DOT)
                dots += (
                    f'<path class="refused" d="M{self._x(n + 0.5)},9h0" '
                    f'stroke-width="{size:.2g}"><title>{count} refused or timed out, '
                    f"{duration(n * width)} after the start</title></path>"
                )
        return dots

    def _class(self, number: int, tick: Tick) -> str:
        if tick.at > _LAST * self._seconds:
            return ' class="last"'
        # Hidden on a phone, where it would also touch the last one.
        is_near_end = tick.at > _NEAR_END * self._seconds
        return ' class="odd"' if number % 2 or is_near_end else ""

    def _summary(self) -> str:
        unit = rate_unit(self._highest)
        return (
            f"at most {self._most_sent * unit.seconds:.3g} sent per {unit.long} in "
            f"{duration(self._seconds)}, {sum(self._series.refused)} refused or timed "
            f"out, paused for {duration(sum(self._series.silent))}"
        )


def _runs(row: Sequence[float | None]) -> Iterator[tuple[int, int, float]]:
    """Return start, end and value of each run of equal values, without None."""
    bucket = 0
    for value, group in groupby(row):
        start, bucket = bucket, bucket + len(list(group))
        if value is not None:
            yield start, bucket, value
