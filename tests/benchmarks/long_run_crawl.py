"""The spider of the long run, and the gauge that is read while it crawls."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scrapy import Request, Spider, signals

from scrapy_politeness import PolitenessExtension
from tests.benchmarks.long_run_plan import AT_ONCE, STEADY, Plan, address
from tests.support.spiders import resident_megabytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.base import ReactorBase
    from twisted.python.failure import Failure

# Of a steady host, so many requests wait at a time.
_AHEAD = 10

# Seconds: how closely the event loop is watched.
_LOOK_EVERY = 0.05

# To look at every object in memory holds the loop up: only every so many readings.
_COUNT_OBJECTS_EVERY = 6

# Shares of the crawl between which memory is compared, line by line.
_WARM = 0.4
_NEARLY_DONE = 0.9
_MOST_GROWN = 25

PACKAGE = "scrapy_politeness"
_ROOT = str(Path(__file__).parents[2])


class LongRun(Spider):
    """Visits all hosts of the plan, and all pages of each."""

    name = "long_run"
    plan: Plan
    port: int
    done = 0

    async def start(self) -> AsyncIterator[Request]:
        self._left: dict[int, int] = {}
        self._next_host = STEADY
        for host in range(STEADY):
            for page in range(min(_AHEAD, self.plan.pages(host))):
                yield self.page(host, page)
        for _ in range(AT_ONCE):
            for request in self.visit_next():
                yield request

    def visit_next(self) -> Iterator[Request]:
        host = self._next_host
        if host >= self.plan.hosts:
            return
        self._next_host += 1
        self._left[host] = self.plan.pages(host)
        for page in range(self.plan.pages(host)):
            yield self.page(host, page)

    def page(self, host: int, page: int) -> Request:
        return Request(
            f"http://{address(host)}:{self.port}/page/{page}",
            callback=self.parse,
            errback=self.failed,
            cb_kwargs={"host": host, "number": page},
        )

    def parse(
        self, response: Response, host: int = 0, number: int = 0
    ) -> Iterator[Request]:
        return self.over(host, number)

    def failed(self, failure: Failure) -> Iterator[Request]:
        assert self.crawler.stats is not None
        kind = type(failure.value).__name__
        self.crawler.stats.inc_value(f"long_run/failed/{kind}")
        return self.over(*failure.request.cb_kwargs.values())  # type: ignore[attr-defined]

    def over(self, host: int, number: int) -> Iterator[Request]:
        self.done += 1
        if host < STEADY:
            if number + _AHEAD < self.plan.pages(host):
                yield self.page(host, number + _AHEAD)
            return
        self._left[host] -= 1
        if not self._left[host]:
            del self._left[host]
            yield from self.visit_next()


class Gauge:
    """Reads, every ``GAUGE_EVERY`` seconds, what the crawl has in memory, as a line of
    JSON in ``GAUGE_FILE``; and when the engine has stopped, what is left."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._every = crawler.settings.getfloat("GAUGE_EVERY")
        self._file = Path(crawler.settings["GAUGE_FILE"]).open("w", buffering=1)  # noqa: SIM115
        self._lateness: list[float] = []
        self._readings = 0
        self._early: tracemalloc.Snapshot | None = None
        if crawler.settings.getbool("GAUGE_TRACE"):
            tracemalloc.start()
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._stopped, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Gauge:
        return cls(crawler)

    def _opened(self) -> None:
        self._began_at = time.monotonic()
        self._watch = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            next_at += self._every
            while (before := loop.time()) < next_at:
                await asyncio.sleep(_LOOK_EVERY)
                self._lateness.append(loop.time() - before - _LOOK_EVERY)
            self._write(self._reading())

    def _reading(self) -> dict[str, Any]:
        spider = self._crawler.spider
        assert isinstance(spider, LongRun)
        late, self._lateness = sorted(self._lateness), []
        reading: dict[str, Any] = {
            "at": time.monotonic() - self._began_at,
            "done": spider.done,
            "memory": resident_megabytes(),
            "late": late[-1] if late else 0.0,
            "late_median": late[len(late) // 2] if late else 0.0,
            "tasks": len(asyncio.all_tasks()),
            "timers": len(timers()),
            "delayed": len(delayed_calls()),
            "files": len(os.listdir("/proc/self/fd")),
            **self._ours(),
        }
        self._readings += 1
        if self._readings % _COUNT_OBJECTS_EVERY == 0:
            reading["objects"] = our_objects()
            reading["task_kinds"] = _task_kinds()
        if tracemalloc.is_tracing():
            self._compare(spider)
        return reading

    def _compare(self, spider: LongRun) -> None:
        share = spider.done / spider.plan.pages_in_all
        if self._early is None and share > _WARM:
            gc.collect()
            self._early = tracemalloc.take_snapshot()
        elif self._early is not None and share > _NEARLY_DONE:
            gc.collect()
            late = tracemalloc.take_snapshot()
            tracemalloc.stop()
            grown = late.compare_to(self._early, "lineno")
            self._write({"grown": [str(line) for line in grown[:_MOST_GROWN]]})

    def _ours(self) -> dict[str, int]:
        politeness = self._crawler.get_extension(PolitenessExtension)
        if politeness is None:
            return {}
        parts = politeness.parts
        return {
            "slots": len(parts.registry),
            "tickets": len(parts.tickets),
            "sent": parts.tickets.sent,
            "lines": len(parts.gate._slots),
            "robots": len(parts.robots._known),
            "robots_asked": len(parts.robots._asked),
            "sleepers": len(parts.robots._sleepers),
            "tallies": len(parts.census_taker.tallies),
            "heap": sum(len(q._ready_slots._limited._heap) for q in parts.queues),
            "queued": sum(map(len, parts.queues)),
        }

    def _stopped(self) -> None:
        self._watch.cancel()
        gc.collect()
        left = {
            "tasks": our_names(asyncio.all_tasks()),
            "timers": our_names([*timers(), *delayed_calls()]),
            "objects": our_objects(),
            **self._ours(),
        }
        self._write({"left": left})
        self._file.close()

    def _write(self, reading: dict[str, Any]) -> None:
        self._file.write(json.dumps(reading) + "\n")


def our_names(things: Iterable[object]) -> list[str]:
    # The folder of the checkout may be called like the package.
    names = (repr(thing).replace(_ROOT, "") for thing in things)
    return [name for name in names if PACKAGE in name]


def delayed_calls() -> list[object]:
    from twisted.internet import reactor

    return list(cast("ReactorBase", reactor).getDelayedCalls())


def timers() -> list[asyncio.TimerHandle]:
    loop: Any = asyncio.get_running_loop()
    return [timer for timer in loop._scheduled if not timer.cancelled()]


def our_objects() -> dict[str, int]:
    kinds = Counter(map(type, gc.get_objects()))
    return {
        kind.__name__: number
        for kind, number in kinds.most_common()
        if str(kind.__module__).startswith(PACKAGE)
    }


def _task_kinds() -> Counter[str]:
    coros = (task.get_coro() for task in asyncio.all_tasks())
    return Counter(getattr(coro, "__qualname__", "?") for coro in coros)
