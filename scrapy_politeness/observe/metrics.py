"""Metrics for Prometheus, through its official client.

The client answers in threads of its own. They never touch the crawl itself: every
second, the event loop hands them a snapshot that never changes.
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

from scrapy_politeness.http.scrapy_internals import in_thread
from scrapy_politeness.observe.figures import FIGURES
from scrapy_politeness.observe.histogram import BOUNDS, Histogram
from scrapy_politeness.observe.labels import Account, Ledger
from scrapy_politeness.scheduling.timers import Beat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from wsgiref.simple_server import WSGIServer

    from scrapy import Spider

    from scrapy_politeness.observe.census import Census

logger = logging.getLogger(__name__)

_EVERY = 1.0

_PREFIX = "scrapy_politeness_"


@dataclass(frozen=True)
class Picture:
    census: Census
    accounts: list[Account]
    waits: list[int]
    waited: float


class Metrics:
    """Raises OSError if the port is taken, before the crawl starts; but listens only
    once it has started, since nothing tells of a crawl that fails before that."""

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
            self._log.error("Cannot serve metrics: %(error)s", {"error": error})
            return
        host, port = self._server.server_address[:2]
        self._log.info(
            "Serving metrics at http://%(host)s:%(port)d/metrics",
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
            yield from _of_slots(picture.accounts)


def _of_crawl(picture: Picture) -> Iterator[Metric]:
    census = picture.census
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
        buckets=list(zip(bounds, map(float, picture.waits), strict=True)),
        sum_value=picture.waited,
    )


def _of_slots(accounts: list[Account]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for figure in FIGURES:
        if not figure.metric:
            continue
        labels = ["slot", *([figure.label] if figure.label else [])]
        if figure.metric not in families:
            kind = CounterMetricFamily if figure.is_count else GaugeMetricFamily
            meaning = f"requests by {figure.label}" if figure.label else figure.meaning
            name = f"{_PREFIX}{figure.metric}"
            families[figure.metric] = kind(name, meaning.capitalize(), labels=labels)
        for account in accounts:
            counted = account.counts.get(figure.name)
            value = figure.read(account.view) if counted is None else counted
            if value is not None:
                own = [account.label, figure.name][: len(labels)]
                families[figure.metric].add_metric(own, value)
    yield from families.values()
    health = GaugeMetricFamily(
        f"{_PREFIX}health", "1 for the slot's health", labels=["slot", "health"]
    )
    for account in accounts:
        if account.view.status is not None:
            health.add_metric([account.label, account.view.status.health.value], 1)
    yield health
