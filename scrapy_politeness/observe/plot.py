"""One plot: rates over time, as SVG, with its labels as HTML around it.

The drawing is stretched to the width of the page, whatever that is; text in it would
be stretched, too, so labels are put around it.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import duration, rate_unit
from scrapy_politeness.observe.axes import rate_ticks, time_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_politeness.observe.axes import Tick
    from scrapy_politeness.observe.report import Series

_WIDTH, _HEIGHT = 1000, 200

# A limit far above what was sent would press that to the ground.
_MOST_ABOVE = 1.6
_AIR = 1.08

# How wide the dots of refusals are.
_SMALL_DOT, _LARGE_DOT = 3.0, 9.0

# The opacity of a pause that is short against its bucket.
_FAINT = 0.07

# Labels so near to the right end are put to the left of their ticks.
_LAST = 0.96


# Seconds. Most crawls begin with slots that send in step.
_SMOOTH = 1.0


class Plot:
    """``smooth`` shows what is sent in a second instead of in each bucket: for series
    of several slots."""

    def __init__(
        self, series: Series, seconds: float, name: str, *, smooth: bool = False
    ) -> None:
        self._series = series
        self._seconds = max(seconds, series.width)
        self._name = name
        self._sent = self._rates(round(_SMOOTH / series.width) if smooth else 1)
        most = max(self._sent, default=0.0)
        limits = [r for r in (*series.rate, *series.ceiling) if r is not None]
        shown = [r for r in limits if r <= _MOST_ABOVE * most]
        self._ticks = rate_ticks(_AIR * max(most, *shown, 1e-4))
        self._highest = self._ticks[-1].at

    @property
    def rate_ticks(self) -> list[Tick]:
        """From the lower end of the drawing to the upper one."""
        return self._ticks

    def html(self) -> str:
        return (
            f'<div class="plot"><div class="ys" aria-hidden="true">{self._y_labels()}'
            f"</div>{self.svg()}"
            f'<div class="xs" aria-hidden="true">{self._x_labels()}</div></div>'
        )

    def svg(self, attributes: str = "") -> str:
        """The drawing alone; ``attributes`` say where it stands in another one."""
        series = self._series
        label = escape(f"Requests over time, {self._name}: {self._summary()}")
        return (
            f'<svg {attributes}role="img" aria-label="{label}" '
            f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
            f"{self._grid()}{self._pauses()}"
            f'<path class="sent" d="{self._area(self._sent)}"/>'
            f'<path class="allowed" d="{self._line(series.rate)}"/>'
            f'<path class="ceiling" d="{self._line(series.ceiling)}"/>'
            f"{self._refusals()}</svg>"
        )

    def _rates(self, buckets: int) -> list[float]:
        """Return requests per second, over so many buckets around each."""
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

    def _x(self, seconds: float) -> str:
        return f"{_WIDTH * min(seconds / self._seconds, 1.0):.5g}"

    def _y(self, rate: float) -> str:
        return f"{_HEIGHT * (1 - min(rate / self._highest, 1.1)):.4g}"

    def _runs(self, row: Sequence[float | None]) -> Iterator[tuple[int, int, float]]:
        """Return from where to where which value holds; not where none does."""
        bucket = 0
        for value, group in groupby(row):
            start, bucket = bucket, bucket + len(list(group))
            if value is not None:
                yield start, bucket, value

    def _area(self, row: Sequence[float]) -> str:
        width = self._series.width
        steps = (
            f"V{self._y(value)}H{self._x(end * width)}"
            for _, end, value in self._runs(row)
        )
        return f"M0,{_HEIGHT}{''.join(steps)}V{_HEIGHT}Z"

    def _line(self, row: Sequence[float | None]) -> str:
        width, path, drawn_to = self._series.width, "", -1
        for start, end, value in self._runs(row):
            y = self._y(value)
            path += f"V{y}" if start == drawn_to else f"M{self._x(start * width)},{y}"
            path += f"H{self._x(end * width)}"
            drawn_to = end
        return path

    def _grid(self) -> str:
        lines = "".join(f"M0,{self._y(tick.at)}H{_WIDTH}" for tick in self._ticks)
        return f'<path class="grid" d="{lines}"/>'

    def _pauses(self) -> str:
        width, silent = self._series.width, self._series.silent
        shares = [max(_FAINT, round(s / width, 1)) if s else None for s in silent]
        return "".join(
            f'<rect class="pause" x="{self._x(start * width)}" y="0" '
            f'width="{self._span(start, end)}" height="{_HEIGHT}" '
            f'opacity="{min(share, 1):.2g}"/>'
            for start, end, share in self._runs(shares)
        )

    def _span(self, start: int, end: int) -> str:
        width = self._series.width
        return f"{float(self._x(end * width)) - float(self._x(start * width)):.4g}"

    def _refusals(self) -> str:
        width = self._series.width
        dots = (
            f'<path class="refused" d="M{self._x((n + 0.5) * width)},9h0" '
            f'stroke-width="{self._size(n):.2g}">'
            f"<title>{count} refused or timed out, {duration(n * width)} after the "
            "start</title></path>"
            for n, count in enumerate(self._series.refused)
            if count
        )
        return "".join(dots)

    def _size(self, bucket: int) -> float:
        """A bucket of a long crawl has many requests: of a refusal among hundreds, a
        small dot tells enough."""
        share = self._series.refused[bucket] / max(self._series.sent[bucket], 1.0)
        return _SMALL_DOT + min(1.0, 5 * share) * (_LARGE_DOT - _SMALL_DOT)

    def _y_labels(self) -> str:
        return "".join(
            f'<span style="top:{100 * (1 - tick.at / self._highest):.4g}%">'
            f"{tick.label}</span>"
            for tick in self._ticks
        )

    def _x_labels(self) -> str:
        # On a phone, every second one has to do.
        return "".join(
            f'<span style="left:{100 * tick.at / self._seconds:.4g}%"'
            f"{self._place(n, tick)}>{tick.label}</span>"
            for n, tick in enumerate(time_ticks(self._seconds))
        )

    def _place(self, number: int, tick: Tick) -> str:
        if tick.at > _LAST * self._seconds:
            return ' class="last"'
        return ' class="odd"' if number % 2 else ""

    def _summary(self) -> str:
        unit = rate_unit(self._highest)
        most = max(self._sent, default=0.0) * unit.seconds
        refused = sum(self._series.refused)
        silent = sum(self._series.silent)
        return (
            f"at most {most:.3g} per {unit.long} were sent in {duration(self._seconds)}"
            f", {refused} refused or timed out, {duration(silent)} of silence"
        )
