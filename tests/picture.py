"""The picture in docs/how-it-works.md: the governor and a host whose limit changes.

    python -m tests.picture

writes docs/governor.svg. It is drawn by what draws the report of a crawl, from a
simulation on virtual time, so it is the same each time until the governor changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor import Bounds
from scrapy_politeness.core.scope import Scope
from scrapy_politeness.observe.axes import time_ticks
from scrapy_politeness.observe.plot import Plot
from scrapy_politeness.observe.sampler import Sampler
from scrapy_politeness.simulator import RetryAfter, Steps, TokenBucket, simulate
from tests.observed import Newsroom

if TYPE_CHECKING:
    from scrapy_politeness.observe.report import SlotReport

FILE = Path(__file__).parents[1] / "docs" / "governor.svg"

SECONDS = 1200.0
# What the host allows: from when on, and how many requests per second.
LIMITS = ((0.0, 4.0), (300.0, 2.0), (600.0, 6.0))
BURST = 8

_LEFT, _TOP, _WIDTH, _HEIGHT = 48, 48, 760, 220
_PAGE = (_LEFT + _WIDTH + 32, _TOP + _HEIGHT + 32)

# A background of its own, so that it can be read on a page of any colour.
_STYLE = """
svg { --page: #fff; --ink: #1b2430; --soft: #566172; --line: #dfe3e9; --sent: #3b82d6;
  --ceiling: #b45f06; --refused: #c62828; --real: #2f9c86; }
@media (prefers-color-scheme: dark) { svg { --page: #12161c; --ink: #e8ecf2;
  --soft: #a3afbf; --line: #303946; --sent: #5aa0f2; --ceiling: #f0a64b;
  --refused: #ff6b61; --real: #4dc4ab; } }
text { font: 13px system-ui, sans-serif; fill: var(--soft); }
.page { fill: var(--page); }
path { fill: none; vector-effect: non-scaling-stroke; }
.grid { stroke: var(--line); }
.sent { fill: var(--sent); fill-opacity: .25; stroke: var(--sent); stroke-width: 1.5; }
.allowed { stroke: var(--ink); stroke-width: 1.5; }
.ceiling { stroke: var(--ceiling); stroke-width: 2; stroke-dasharray: 5 4; }
.refused { stroke: var(--refused); stroke-linecap: round; }
.large { stroke-width: 7; }
.real { stroke: var(--real); stroke-width: 2; stroke-dasharray: 2 3; }
.pause { fill: var(--soft); fill-opacity: .4; }
"""

_LEGEND = (
    (48, "sent", "M0,19h20v8H0Z", "sent"),
    (128, "allowed", "M0,23h20", "rate"),
    (208, "ceiling", "M0,23h20", "believed limit"),
    (348, "real", "M0,23h20", "the host's limit"),
    (498, "refused large", "M10,23h0", "refused"),
    (598, "pause", "M0,15h20v16H0Z", "silence"),
)


def picture() -> str:
    series = crawl().series
    assert series is not None
    plot = Plot(series, SECONDS, "in a simulation")
    place = f'x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" '
    width, height = _PAGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{_STYLE}</style>'
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>'
        f"{_legend()}{_labels(plot)}{plot.svg(place)}{_limits(plot)}</svg>\n"
    )


def crawl() -> SlotReport:
    room = Newsroom(sampler=Sampler(0.0))
    scope = Scope("host", Bounds(), spacing=0.0, concurrency=8)
    server = RetryAfter(TokenBucket(Steps(*LIMITS), burst=BURST))
    simulate([room.observe(scope)], server, seconds=SECONDS)
    return room.report(SECONDS).slots[0]


def _legend() -> str:
    return "".join(
        f'<g transform="translate({x})"><path class="{name}" d="{path}"/>'
        f'<text x="27" y="28">{text}</text></g>'
        for x, name, path, text in _LEGEND
    )


def _labels(plot: Plot) -> str:
    rates = "".join(
        f'<text x="{_LEFT - 8}" y="{_y(plot, tick.at) + 4:.4g}" '
        f'text-anchor="end">{tick.label}</text>'
        for tick in plot.rate_ticks
    )
    times = "".join(
        f'<text x="{_x(tick.at):.4g}" y="{_TOP + _HEIGHT + 20}" '
        f'text-anchor="middle">{tick.label}</text>'
        for tick in time_ticks(SECONDS)
    )
    return rates + times


def _limits(plot: Plot) -> str:
    ends = [start for start, _ in LIMITS[1:]] + [SECONDS]
    steps = "".join(
        f"M{_x(start):.4g},{_y(plot, rate):.4g}H{_x(end):.4g}"
        for (start, rate), end in zip(LIMITS, ends, strict=True)
    )
    return f'<path class="real" d="{steps}"/>'


def _x(seconds: float) -> float:
    return _LEFT + _WIDTH * seconds / SECONDS


def _y(plot: Plot, rate: float) -> float:
    return _TOP + _HEIGHT * (1 - rate / plot.rate_ticks[-1].at)


if __name__ == "__main__":
    FILE.write_text(picture(), "utf-8")
