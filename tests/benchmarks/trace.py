"""How much of the package a request passes through.

    python -m tests.benchmarks.trace [--modules]

Crawls a site on loopback with ``sys.setprofile``, and prints for an ordinary request,
and for one that is refused and asked for again, how many functions of the package are
called, and how many of these calls change the module: come from another module of the
package, or from Scrapy. The numbers are means over requests, apart from the first ones.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals

import scrapy_politeness
from tests.support.crawl import crawl
from tests.support.settings import NO_ROBOTS
from tests.support.site import Answer, Site
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from types import FrameType

    from scrapy.crawler import Crawler
    from typing_extensions import Self

_PACKAGE = str(Path(scrapy_politeness.__file__).parent)

# Pages; what is made for the first ones of a slot is not made for the others.
_WARM_UP = 20
_MEASURED = 100

SETTINGS: dict[str, Any] = {
    **NO_ROBOTS,
    "POLITENESS_START_RATE": 50,
    "POLITENESS_MIN_RATE": 50,
    "POLITENESS_MAX_RATE": 50,
    "POLITENESS_BACKOFF_BASE": 0.01,
    "POLITENESS_BACKOFF_MAX": 0.01,
    "LOG_LEVEL": "INFO",
}


class Traced(Pages):
    """Counts from one page on to another."""

    name = "traced"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.done = 0
        spider.calls = Counter[str]()
        spider.changes = Counter[str]()
        crawler.signals.connect(spider.scraped, signals.item_scraped)
        crawler.signals.connect(spider.tell, signals.spider_closed)
        return spider

    done: int
    calls: Counter[str]
    changes: Counter[str]

    def scraped(self) -> None:
        self.done += 1
        if self.done == _WARM_UP:
            sys.setprofile(self._profile)
        elif self.done == _WARM_UP + _MEASURED:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            return
        module = name[len(_PACKAGE) + 1 : -3]
        self.calls[module] += 1
        caller = frame.f_back
        if caller is None or caller.f_code.co_filename != name:
            self.changes[module] += 1

    def tell(self) -> None:
        stats = self.crawler.stats
        assert stats is not None
        stats.set_value("trace/calls", dict(self.calls))
        stats.set_value("trace/changes", dict(self.changes))


def measure(*, refused: bool) -> tuple[Counter[str], Counter[str]]:
    """Return calls and changes of module, for each module, of all that was measured."""

    def answer(path: str, nth: int) -> Answer | None:
        is_refused = refused and nth == 1
        return Answer(429, {"Retry-After": "0"}) if is_refused else None

    with Site(_WARM_UP + _MEASURED + 10, answer=answer) as site:
        result = crawl(Traced, urls=site.page_urls(), settings=SETTINGS, timeout=120)
    assert len(result.items) == _WARM_UP + _MEASURED + 10, result.log
    return (
        Counter(result.stats["trace/calls"]),
        Counter(result.stats["trace/changes"]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", action="store_true", help="show each module")
    options = parser.parse_args()
    calls, changes = measure(refused=False)
    # Each of these was refused once, and served then.
    both_calls, both_changes = measure(refused=True)
    both_calls.subtract(calls)
    both_changes.subtract(changes)
    print("| request | calls | changes of module |")
    print("|---|--:|--:|")
    for name, made, between in (
        ("ordinary", calls, changes),
        ("refused", both_calls, both_changes),
    ):
        in_all = made.total() / _MEASURED, between.total() / _MEASURED
        print(f"| {name} | {in_all[0]:.0f} | {in_all[1]:.0f} |")
        if options.modules:
            for module, number in between.most_common():
                print(f"| - {module} | {made[module] / _MEASURED:.1f} ", end="")
                print(f"| {number / _MEASURED:.1f} |")


if __name__ == "__main__":
    # The spider travels by pickle, under the name of its module.
    from tests.benchmarks import trace as this

    this.main()
