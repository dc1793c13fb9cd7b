"""Metrics for Prometheus, through its official client.

The client answers in threads of its own. They never touch the crawl itself: every
second, the event loop hands them a snapshot that never changes.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from scrapy_politeness.http.names import printable
from scrapy_politeness.http.scrapy_internals import in_thread
from scrapy_politeness.observe import figures
from scrapy_politeness.observe.census import Census, SlotView
from scrapy_politeness.observe.figures import COUNTS
from scrapy_politeness.observe.tally import BOUNDS, Histogram, Tally
from scrapy_politeness.scheduling.timers import Beat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from wsgiref.simple_server import WSGIServer

    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy

logger = logging.getLogger(__name__)

_EVERY = 1.0

_PREFIX = "scrapy_politeness_"

# How many slots get a label of their own, which they keep to the end of the crawl.
MOST_LABELS = 50
_OTHER = "other"
# Where there are more slots, only those with this much traffic, or a failure, get one.
_FEWEST_SENT = 10

Counts = dict[str, float]
_ZERO: Counts = dict.fromkeys(COUNTS, 0.0)


class Metrics:
    """Finds out at once whether the port is free, but listens only once the crawl has
    started: nothing would be closed if it failed before that."""

    def __init__(
        self,
        policy: Policy,
        take_census: Callable[[float], Census],
        waits: Histogram,
        spider: Spider | None,
    ) -> None:
        self._address = policy.prometheus_host, policy.prometheus_port or 0
        self._take_census = take_census
        self._waits = waits
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._collector = CensusCollector()
        self._server: WSGIServer | None = None
        self._beat = Beat(self._update, _EVERY)
        try:
            _try_to_listen(*self._address)
        except OSError as error:
            raise policy.error(
                "prometheus_port",
                f"must be a free port on POLITENESS_PROMETHEUS_HOST="
                f"{policy.prometheus_host!r}; {error}",
            ) from error

    def start(self) -> None:
        registry = CollectorRegistry()
        registry.register(self._collector)
        host, port = self._address
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            self._log.error("Cannot serve metrics: %(error)s", {"error": error})
            return
        self._log.info(
            "Serving metrics at http://%(host)s:%(port)d/metrics",
            dict(zip(("host", "port"), self._server.server_address, strict=False)),
        )
        self._update()
        self._beat.start(_EVERY)

    async def close(self) -> None:
        if self._server is not None:
            self._beat.stop()
            await in_thread(partial(self._close, self._server))

    def _close(self, server: WSGIServer) -> None:
        server.shutdown()
        server.server_close()
        self._thread.join()

    def _update(self) -> None:
        self._collector.update(self._take_census(_EVERY / 2), self._waits)


def _try_to_listen(host: str, port: int) -> None:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, *_, address = found[0]
    socket.create_server(address, family=family).close()


class CensusCollector(Collector):
    def __init__(self) -> None:
        self._labels = SlotLabels()
        self._latest: Snapshot | None = None

    def update(self, census: Census, waits: Histogram) -> None:
        slots = self._labels.update(census)
        self._latest = Snapshot(census, slots, waits.cumulative(), waits.sum)

    def describe(self) -> list[Metric]:
        return []  # the client would collect everything to find the names

    def collect(self) -> Iterator[Metric]:
        if (snapshot := self._latest) is not None:
            yield from _crawl_metrics(snapshot)
            yield from _slot_metrics(snapshot.slots)


class Snapshot(NamedTuple):
    census: Census
    slots: list[LabelledSlot]
    waits: list[int]
    waited: float


@dataclass(frozen=True, slots=True)
class LabelledSlot:
    """``counts`` are those under its label, ``before`` those from before it had one."""

    label: str
    view: SlotView
    before: Counts
    counts: Counts


class SlotLabels:
    """Keeps all counters from decreasing. What was counted for a slot before it had a
    label stays with the others; what was counted under a label whose tally started
    again is never added to them."""

    def __init__(self) -> None:
        self._slots: dict[str, LabelledSlot] = {}
        self._dropped = _ZERO

    def update(self, census: Census) -> list[LabelledSlot]:
        views = {view.key: view for view in census.slots}
        crowded = len(census.slots) + census.others > MOST_LABELS
        for key, view in views.items():
            if len(self._slots) >= MOST_LABELS:
                break
            if key not in self._slots and (not crowded or _deserves_label(view)):
                before = _counts(view.tally) if crowded else _ZERO
                self._slots[key] = LabelledSlot(self._label(key), view, before, _ZERO)
        for key, slot in self._slots.items():
            self._slots[key] = self._updated(slot, views.get(key))
        return [*self._slots.values(), self._others(census)]

    def _label(self, slot_key: str) -> str:
        name = printable(slot_key)
        taken = {_OTHER, *(slot.label for slot in self._slots.values())}
        labels = chain([name], (f"{name} ({number})" for number in count(2)))
        return next(label for label in labels if label not in taken)

    def _updated(self, slot: LabelledSlot, view: SlotView | None) -> LabelledSlot:
        if view is None:  # no longer tallied, so nothing is sent to it
            return replace(slot, view=SlotView(slot.view.key, None, 0, Tally()))
        before, counts = slot.before, _minus(_counts(view.tally), slot.before)
        if any(counts[name] < slot.counts[name] for name in COUNTS):
            # Its tally started again, and the old one is now part of the others.
            self._dropped = _minus(self._dropped, _minus(_ZERO, slot.counts))
            before, counts = _ZERO, _counts(view.tally)
        return LabelledSlot(slot.label, view, before, counts)

    def _others(self, census: Census) -> LabelledSlot:
        counts, pending = _minus(_counts(census.total), self._dropped), census.pending
        for slot in self._slots.values():
            counts = _minus(counts, slot.counts)
            pending -= slot.view.pending
        # Sums of floats differ in the last digits.
        counts = {name: max(0.0, value) for name, value in counts.items()}
        view = SlotView(_OTHER, None, max(0, pending), Tally())
        return LabelledSlot(_OTHER, view, _ZERO, counts)


def _deserves_label(view: SlotView) -> bool:
    tally, status = view.tally, view.status
    failures = tally.refused + tally.timed_out + tally.failed
    paused = status is not None and status.paused_for > 0
    return tally.sent >= _FEWEST_SENT or failures > 0 or paused


def _counts(tally: Tally) -> Counts:
    return {name: float(getattr(tally, name)) for name in COUNTS}


def _minus(counts: Counts, others: Counts) -> Counts:
    return {name: value - others[name] for name, value in counts.items()}


def _crawl_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    census = snapshot.census
    yield CounterMetricFamily(
        f"{_PREFIX}done", "Responses that the crawl received", value=census.done
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}in_progress",
        "Requests that have left the scheduler and are not finished",
        value=census.in_progress,
    )
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    yield HistogramMetricFamily(
        f"{_PREFIX}wait_seconds",
        "Seconds for which each request was held back while first in line",
        buckets=list(zip(bounds, map(float, snapshot.waits), strict=True)),
        sum_value=snapshot.waited,
    )


def _slot_metrics(slots: list[LabelledSlot]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for figure in figures.FIGURES:
        if not figure.metric:
            continue
        labels = ["slot", *([figure.label] if figure.label else [])]
        if figure.metric not in families:
            kind = CounterMetricFamily if figure.is_count else GaugeMetricFamily
            meaning = f"requests by {figure.label}" if figure.label else figure.meaning
            name = f"{_PREFIX}{figure.metric}"
            families[figure.metric] = kind(name, meaning.capitalize(), labels=labels)
        for slot in slots:
            value = slot.counts.get(figure.name, figure.read(slot.view))
            if value is not None:
                own = [slot.label, figure.name][: len(labels)]
                families[figure.metric].add_metric(own, value)
    yield from families.values()
    health = GaugeMetricFamily(
        f"{_PREFIX}health", "1 for the slot's health", labels=["slot", "health"]
    )
    for slot in slots:
        if slot.view.status is not None:
            health.add_metric([slot.label, slot.view.status.health.value], 1)
    yield health
