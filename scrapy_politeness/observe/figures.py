"""The figures of a slot, one row each.

Stats, metrics, the report, the command, the console and the live display are made from
this table: a new figure is one more row.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_politeness.core.text import duration, interval, number, percent, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy_politeness.observe.census import SlotView


class Figure(NamedTuple):
    """``name`` is its name in the report's data, ``title`` the heading of its column,
    ``stat`` and ``metric`` its names there; without one, it is left out there. ``read``
    returns None where the figure is not known.

    A count is kept in the Tally, and can be summed over slots. If several figures share
    a metric, the value of its ``label`` is the figure's name.
    """

    name: str
    meaning: str
    read: Callable[[SlotView], Any]
    show: Callable[[float], str] = number
    title: str = ""
    stat: str = ""
    metric: str = ""
    label: str = ""
    is_count: bool = False
    is_live: bool = False

    def text(self, figures: Mapping[str, float]) -> str:
        value = figures.get(self.name)
        return "" if value is None else self.show(value)


def _count(name: str, meaning: str, **more: Any) -> Figure:
    return Figure(name, meaning, attrgetter(f"tally.{name}"), is_count=True, **more)


def _state(name: str, meaning: str, **more: Any) -> Figure:
    """A slot that was forgotten, or that nothing limits, has none."""
    read = attrgetter(name)
    return Figure(name, meaning, lambda view: view.status and read(view.status), **more)


def _share(share: float) -> str:
    return percent(share) if share else ""


_ANSWER = {"metric": "answers", "label": "outcome"}

# fmt: off
FIGURES = (
    _count("sent", "requests sent", metric="requests"),
    _count("served", "responses that were not refusals, robots.txt and errors included",
        title="Pages", stat="served", **_ANSWER),
    _count("refused", 'responses that meant "too fast"',
        title="Refused", stat="refused", **_ANSWER),
    _count("timed_out", "requests without a response in time",
        title="Timed out", stat="timed_out", **_ANSWER),
    _count("failed", "requests that ended in another error", **_ANSWER),
    _count("rescheduled", "refused requests that went back to the scheduler",
        title="Rescheduled", stat="rescheduled", metric="rescheduled"),
    _count("given_up", "requests given up", title="Given up", stat="given_up"),
    _count("waited", "seconds for which requests were held back",
        title="Waited", show=duration, stat="held_seconds", metric="waited_seconds"),
    Figure("average_interval", "average seconds from one request to the next",
        attrgetter("tally.average_interval"),
        title="Interval", show=interval, stat="average_interval"),
    _state("rate", "requests per second allowed now, or at the end of the crawl",
        title="Rate", show=rate, stat="rate", metric="rate", is_live=True),
    _state("ceiling", "requests per second that the host allows, if known",
        title="Limit", show=rate, stat="ceiling", metric="limit", is_live=True),
    _state("bad_luck", "share of requests that fail whatever the rate; 0 until known",
        title="Bad luck", show=_share, stat="bad_luck", metric="bad_luck"),
    Figure("pending", "requests that are waiting", attrgetter("pending"),
        title="Waiting", metric="waiting", is_live=True),
    _state("paused_for", "seconds left of the current pause",
        show=duration, metric="pause_seconds"),
    _state("in_flight", "requests in flight", metric="in_flight"),
    _state("concurrency", "requests allowed in flight", metric="concurrency"),
)
# fmt: on

COUNTS = tuple(figure.name for figure in FIGURES if figure.is_count)


def columns(slots: Iterable[Mapping[str, float]]) -> list[Figure]:
    """Return the figures with a title that are worth a column for these slots."""
    seen = {name for figures in slots for name, value in figures.items() if value}
    return [figure for figure in FIGURES if figure.title and figure.name in seen]


def figures_of(view: SlotView) -> dict[str, float]:
    read = ((figure.name, figure.read(view)) for figure in FIGURES)
    return {name: value for name, value in read if value is not None}
