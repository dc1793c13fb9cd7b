"""Metrics for Prometheus, by its official client.

The client answers in threads of its own. They never see the crawl itself: every second
the event loop hands them a picture that nobody changes any more.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from scrapy_politeness.alarm import Beat
from scrapy_politeness.engine import in_thread
from scrapy_politeness.observe.histogram import BOUNDS, Histogram
from scrapy_politeness.observe.ledger import Account, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from wsgiref.simple_server import WSGIServer

    from scrapy import Spider

    from scrapy_politeness.core.health import Status
    from scrapy_politeness.observe.census import Census

logger = logging.getLogger(__name__)

_EVERY = 1.0

_PREFIX = "scrapy_politeness_"

# Verdicts, as the tally calls them.
_OUTCOMES = ("served", "refused", "timed_out", "failed")


@dataclass(frozen=True)
class Picture:
    census: Census
    accounts: list[Account]
    waits: list[int]
    waited: float


class Metrics:
    """Raises OSError where the port is taken, before the crawl begins; but listens only
    when it has begun, since nobody says when one fails before that."""

    def __init__(
        self,
        host: str,
        port: int,
        take_census: Callable[[float], Census],
        waits: Histogram,
        spider: Spider | None,
    ) -> None:
        self._take_census = take_census
        self._waits = waits
        self._ledger = Ledger()
        self._pictures = Pictures()
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._address = host, port
        _try_to_listen(host, port)
        self._server: WSGIServer | None = None
        self._beat = Beat(self._paint, _EVERY)

    def start(self) -> None:
        registry = CollectorRegistry()
        registry.register(self._pictures)
        wanted, port = self._address
        try:
            self._server, self._thread = start_http_server(port, wanted, registry)
        except OSError as error:
            self._log.error("There will be no metrics: %(error)s", {"error": error})
            return
        host, port = self._server.server_address[:2]
        self._log.info(
            "Metrics are at http://%(host)s:%(port)d/metrics",
            {"host": host, "port": port},
        )
        self._paint()
        self._beat.start(_EVERY)

    async def close(self) -> None:
        if self._server is not None:
            self._beat.stop()
            await in_thread(partial(self._close, self._server))

    def _close(self, server: WSGIServer) -> None:
        server.shutdown()
        server.server_close()
        self._thread.join()

    def _paint(self) -> None:
        census = self._take_census(_EVERY / 2)
        accounts = self._ledger.accounts(census)
        waits = self._waits
        self._pictures.latest = Picture(census, accounts, waits.cumulative(), waits.sum)


def _try_to_listen(host: str, port: int) -> None:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, *_, address = found[0]
    socket.create_server(address, family=family).close()


class Pictures(Collector):
    latest: Picture | None = None

    def describe(self) -> list[Metric]:
        return []  # else the client would collect all to find out the names

    def collect(self) -> Iterator[Metric]:
        picture = self.latest
        if picture is not None:
            yield from _of_crawl(picture)
            yield from _counters(picture.accounts)
            yield from _gauges(picture.accounts)


def _of_crawl(picture: Picture) -> Iterator[Metric]:
    census = picture.census
    yield CounterMetricFamily(
        f"{_PREFIX}done", "Answers that the crawl got", value=census.done
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}in_progress",
        "Requests that have left the scheduler and are not done",
        value=census.in_progress,
    )
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    yield HistogramMetricFamily(
        f"{_PREFIX}wait_seconds",
        "For how long politeness held each request back, the first in line",
        buckets=list(zip(bounds, map(float, picture.waits), strict=True)),
        sum_value=picture.waited,
    )


def _counters(accounts: list[Account]) -> Iterator[Metric]:
    for name, count, meaning in (
        ("requests", "sent", "Requests sent"),
        ("rescheduled", "rescheduled", "Refused requests that will be sent again"),
        ("waited_seconds", "waited", "Seconds that politeness held requests back"),
    ):
        family = CounterMetricFamily(f"{_PREFIX}{name}", meaning, labels=["slot"])
        for account in accounts:
            family.add_metric([account.label], account.counts[count])
        yield family
    answers = CounterMetricFamily(
        f"{_PREFIX}answers", "What became of requests", labels=["slot", "outcome"]
    )
    for account in accounts:
        for outcome in _OUTCOMES:
            answers.add_metric([account.label, outcome], account.counts[outcome])
    yield answers


def _gauges(accounts: list[Account]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        f"{_PREFIX}waiting", "Requests that wait for a slot", labels=["slot"]
    )
    for account in accounts:
        waiting.add_metric([account.label], account.pending)
    yield waiting
    known = [(a.label, a.status) for a in accounts if a.status is not None]
    for name, meaning, value in _STATUS:
        family = GaugeMetricFamily(f"{_PREFIX}{name}", meaning, labels=["slot"])
        for label, status in known:
            if (number := value(status)) is not None:
                family.add_metric([label], number)
        yield family
    health = GaugeMetricFamily(
        f"{_PREFIX}health", "1 for the health of a slot", labels=["slot", "health"]
    )
    for label, status in known:
        health.add_metric([label, status.health.value], 1)
    yield health


_STATUS: tuple[tuple[str, str, Callable[[Status], float | None]], ...] = (
    ("rate", "Requests per second that may be sent now", lambda s: s.rate),
    (
        "limit",
        "Requests per second that the host allows, where that is known",
        lambda s: s.ceiling,
    ),
    (
        "bad_luck",
        "Share of the requests that fail whatever the rate",
        lambda s: s.bad_luck,
    ),
    ("pause_seconds", "Seconds that are left of a silence", lambda s: s.silent_for),
    ("in_flight", "Requests under way", lambda s: s.in_flight),
    ("concurrency", "Requests that may be under way", lambda s: s.concurrency),
)
