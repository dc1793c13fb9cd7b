"""The picture in docs/how-it-works.md: the governor, a host whose limit changes, and
one that has bad luck besides.

    python -m tests.docs.picture

writes docs/governor.svg and prints the figures for the text around it. It is drawn by
what draws the report of a crawl, from simulations on virtual time, so it is the same
each time until the governor changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.observe.plot import Plot, time_ticks
from scrapy_politeness.observe.timeline import Sampler
from scrapy_politeness.simulator import (
    RandomFailures,
    RetryAfter,
    Steps,
    TokenBucket,
    refused,
    simulate,
)
from tests.benchmarks.laws import Cubic
from tests.support.observed import ObservedCrawl

if TYPE_CHECKING:
    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.observe.report import SlotReport
    from scrapy_politeness.simulator import Server

FILE = Path(__file__).parents[2] / "docs" / "governor.svg"

SECONDS = 1200.0
BURST = 8
BAD_LUCK = 0.01
CONCURRENCY = 8


@dataclass(frozen=True)
class Host:
    """``limits`` are what it allows: from when on, and how many requests per second."""

    title: str
    limits: tuple[tuple[float, float], ...]
    bad_luck: float = 0.0

    def server(self) -> Server:
        bucket = TokenBucket(Steps(*self.limits), burst=BURST)
        if self.bad_luck:
            return RandomFailures(bucket, self.bad_luck, refused())
        return RetryAfter(bucket)


CHANGING = Host("4/s, then 2/s, then 6/s", ((0.0, 4.0), (300.0, 2.0), (600.0, 6.0)))
UNLUCKY = Host("8/s, and 1 % of the requests get a 503", ((0.0, 8.0),), BAD_LUCK)

_LEFT, _WIDTH, _HEIGHT = 48, 760, 200
# Of a panel: its title, its plot, and the labels below.
_TOP, _BELOW = 28, 40
_LEGEND_HEIGHT = 36
_PANEL = _TOP + _HEIGHT + _BELOW

# Seconds of the other law that are shown as one.
BUCKET = 15.0

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
.other { stroke: var(--soft); stroke-width: 1.5; }
.title { fill: var(--ink); font-weight: 600; }
.pause { fill: var(--soft); fill-opacity: .4; }
"""

_LEGEND = (
    (48, "sent", "M0,19h20v8H0Z", "sent"),
    (122, "allowed", "M0,23h20", "rate"),
    (192, "ceiling", "M0,23h20", "believed limit"),
    (328, "real", "M0,23h20", "the host's limit"),
    (470, "refused large", "M10,23h0", "refused"),
    (560, "pause", "M0,15h20v16H0Z", "pause"),
    (650, "other", "M0,23h20", "CUBIC instead"),
)


def picture() -> str:
    width = _LEFT + _WIDTH + 32
    height = _LEGEND_HEIGHT + 2 * _PANEL
    panels = _panel(CHANGING, _LEGEND_HEIGHT) + _panel(
        UNLUCKY, _LEGEND_HEIGHT + _PANEL, cubic(UNLUCKY)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{_STYLE}</style>'
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>'
        f"{_legend()}{panels}</svg>\n"
    )


def crawl(host: Host) -> SlotReport:
    observed_crawl = ObservedCrawl(sampler=Sampler(0.0))
    slot = Slot("host", Bounds(), spacing=0.0, concurrency=CONCURRENCY)
    simulate([observed_crawl.observe(slot)], host.server(), seconds=SECONDS)
    return observed_crawl.report(SECONDS).slots[0]


def cubic(host: Host) -> list[float]:
    """Return the requests per second that CUBIC sends, bucket by bucket."""
    law = _Counted(CONCURRENCY, Bounds())
    simulate([law], host.server(), seconds=SECONDS)
    counts = [0] * round(SECONDS / BUCKET)
    for at in law.sent:
        counts[min(int(at / BUCKET), len(counts) - 1)] += 1
    return [count / BUCKET for count in counts]


class _Counted(Cubic):
    def __init__(self, concurrency: int, bounds: Bounds) -> None:
        super().__init__(concurrency, bounds)
        self.sent: list[float] = []

    def take(self, now: float) -> Permit:
        self.sent.append(now)
        return super().take(now)


def account(host: Host) -> str:
    """What the text around the picture says of that crawl."""
    slot = crawl(host)
    return f"{slot['sent']:,} requests, of which {slot['refused']} were refused"


def _panel(host: Host, top: float, other: list[float] | None = None) -> str:
    series = crawl(host).series
    assert series is not None
    plot = Plot(series, SECONDS, host.title)
    place = f'x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" '
    return (
        f'<g transform="translate(0,{top:g})">'
        f'<text class="title" x="{_LEFT}" y="16">{host.title}</text>'
        f"{_labels(plot)}{plot.svg(place)}{_limits(plot, host)}"
        f"{_other(plot, other or [])}</g>"
    )


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


def _limits(plot: Plot, host: Host) -> str:
    ends = [start for start, _ in host.limits[1:]] + [SECONDS]
    steps = "".join(
        f"M{_x(start):.4g},{_y(plot, rate):.4g}H{_x(end):.4g}"
        for (start, rate), end in zip(host.limits, ends, strict=True)
    )
    return f'<path class="real" d="{steps}"/>'


def _other(plot: Plot, rates: list[float]) -> str:
    if not rates:
        return ""
    points = " ".join(
        f"{_x((n + 0.5) * BUCKET):.5g},{_y(plot, rate):.4g}"
        for n, rate in enumerate(rates)
    )
    return f'<path class="other" d="M{points}"/>'


def _x(seconds: float) -> float:
    return _LEFT + _WIDTH * seconds / SECONDS


def _y(plot: Plot, rate: float) -> float:
    return _TOP + _HEIGHT * (1 - rate / plot.rate_ticks[-1].at)


if __name__ == "__main__":
    FILE.write_text(picture(), "utf-8")
    for host in (CHANGING, UNLUCKY):
        print(f"{host.title}: {account(host)}")
    print(f"CUBIC instead: {sum(cubic(UNLUCKY)) * BUCKET:,.0f} requests")
