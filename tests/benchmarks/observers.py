"""Which share of a crawl's CPU time goes to showing what it does.

    python -m tests.benchmarks.observers

Measured inside each observer, by the clock of the thread: that bears other work on the
machine, which moves pages per second by far more than the observers do. What they cost
after the crawl, as to write the report, is not in it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from functools import wraps
from statistics import median
from typing import TYPE_CHECKING, Any

from scrapy import signals

from scrapy_politeness.observe.metrics import Metrics
from scrapy_politeness.observe.progress import Progress
from scrapy_politeness.observe.timeline import Sampler
from tests.benchmarks.overhead import OBSERVATION, server_process
from tests.support.crawl import crawl
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from typing_extensions import Self

OBSERVERS: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("progress", Progress, ("_show",)),
    ("metrics", Metrics, ("_update",)),
    ("report", Sampler, ("sent", "settled")),
)


class Timed(Pages):
    """Puts the nanoseconds of each observer into the stats."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spent: Counter[str] = Counter()
        for name, observer, methods in OBSERVERS:
            for method in methods:
                timed = _timed(getattr(observer, method), name, spent)
                setattr(observer, method, timed)
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider._spent = spent
        crawler.signals.connect(spider._tell, signals.spider_closed)
        return spider

    _spent: Counter[str]

    def _tell(self) -> None:
        assert self.crawler.stats is not None
        for name, nanoseconds in self._spent.items():
            self.crawler.stats.set_value(f"spent/{name}", nanoseconds)


def _timed(
    method: Callable[..., Any], name: str, spent: Counter[str]
) -> Callable[..., Any]:
    @wraps(method)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time_ns()
        try:
            return method(*args, **kwargs)
        finally:
            spent[name] += time.thread_time_ns() - began

    return timed


def shares(url: str, pages: int) -> dict[str, float]:
    urls = [f"{url}/page/{number}" for number in range(pages)]
    done = crawl(Timed, urls=urls, settings=OBSERVATION["with"], timeout=600)
    if done.stats.get("downloader/response_status_count/200") != pages:
        raise RuntimeError(done.log)
    return {
        name: done.stats[f"spent/{name}"] / 1e9 / done.cpu_seconds
        for name, *_ in OBSERVERS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with server_process() as url:
        rounds = [shares(url, options.pages) for _ in range(options.rounds)]
    sums = [sum(share.values()) for share in rounds]
    for name, *_ in OBSERVERS:
        measured = [share[name] for share in rounds]
        print(f"{name}: {min(measured):.2%} to {max(measured):.2%}")
    print(f"all: {min(sums):.2%} to {max(sums):.2%}, median {median(sums):.2%}")


if __name__ == "__main__":
    # The spider travels by pickle, which must find it in the crawl's own process.
    from tests.benchmarks import observers

    observers.main()
