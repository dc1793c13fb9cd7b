"""How different ways to crawl fare behind a rate limiter that they do not know.

    python -m tests.benchmarks.compare

Pages and refusals are counted by the site; the seconds are the crawl's own, from
spider_opened to spider_closed.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.settings import default_settings

from tests.support.crawl import STOCK, start_crawl
from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Contestant:
    name: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Score:
    fetched: int
    fetched_again: int
    refusals: int
    seconds: float
    finished: bool

    @property
    def refusals_per_100_pages(self) -> float:
        return 100 * self.refusals / self.fetched if self.fetched else math.inf


def contestants(limit: int) -> list[Contestant]:
    # Just under the limit: at the limit itself, jitter on the way costs refusals.
    known_delay = 1 / (limit * 0.975)
    return [
        Contestant("stock Scrapy", STOCK),
        Contestant("stock Scrapy, 10 retries", {**STOCK, "RETRY_TIMES": 10}),
        Contestant("AutoThrottle", {**STOCK, "AUTOTHROTTLE_ENABLED": True}),
        Contestant("scrapy-politeness", {}),
        Contestant(
            f"scrapy-politeness, up to {5 * limit}/s",
            {"POLITENESS_MAX_RATE": float(5 * limit)},
        ),
        Contestant(
            "oracle: knew the limit",
            {**STOCK, "DOWNLOAD_DELAY": known_delay, **without_jitter()},
        ),
    ]


def without_jitter() -> dict[str, Any]:
    if hasattr(default_settings, "DOWNLOAD_DELAY_JITTER"):
        return {"DOWNLOAD_DELAY_JITTER": 0}
    return {"RANDOMIZE_DOWNLOAD_DELAY": False}


def run(contestant: Contestant, site: Site, cap: float) -> Score:
    with start_crawl(
        urls=site.page_urls(),
        settings={"LOG_LEVEL": "INFO", **contestant.settings},
    ) as running:
        try:
            crawl, finished = running.wait(cap), True
        except TimeoutError:
            running.interrupt()
            crawl, finished = running.wait(cap), False
    if crawl.returncode:
        raise RuntimeError(f"{contestant.name} failed:\n{crawl.log}")
    served = site.pages_served()
    del served["/robots.txt"]
    return Score(
        fetched=len(served),
        fetched_again=served.total() - len(served),
        refusals=site.refusals(),
        seconds=crawl.seconds,
        finished=finished,
    )


def table(rows: Iterator[tuple[Contestant, Score]], pages: int) -> Iterator[str]:
    yield (
        f"| | fetched of {pages} | fetched again | refusals "
        "| refusals per 100 pages | seconds |"
    )
    yield "|---|--:|--:|--:|--:|--:|"
    for contestant, score in rows:
        seconds = f"{score.seconds:.1f}" if score.finished else "gave up"
        yield (
            f"| {contestant.name} | {score.fetched} | {score.fetched_again} "
            f"| {score.refusals} | {score.refusals_per_100_pages:.1f} | {seconds} |"
        )


def compare(
    options: argparse.Namespace, retry_after: Callable[[float], str] | None
) -> None:
    def scores() -> Iterator[tuple[Contestant, Score]]:
        for contestant in contestants(options.limit):
            if options.only not in contestant.name:
                continue
            with Site(
                options.pages,
                limit=f"{options.limit}/second",
                retry_after=retry_after,
                latency=options.latency,
            ) as site:
                yield contestant, run(contestant, site, options.cap)

    for line in table(scores(), options.pages):
        print(line, flush=True)


def describe(options: argparse.Namespace) -> None:
    print(
        f"Scrapy {scrapy.__version__}; {options.pages} pages; sliding window of "
        f"{options.limit} requests per second; answers take {options.latency} s.\n"
    )
    for contestant in contestants(options.limit):
        settings = {k: v for k, v in contestant.settings.items() if k != "ADDONS"}
        print(f"- {contestant.name}: {settings or 'defaults'}")
    print(
        "\nscrapy-politeness has POLITENESS_EXEMPT=[] too, as the site is on loopback."
        "\nAutoThrottle's defaults: "
        f"START_DELAY {default_settings.AUTOTHROTTLE_START_DELAY}, "
        f"MAX_DELAY {default_settings.AUTOTHROTTLE_MAX_DELAY}, "
        f"TARGET_CONCURRENCY {default_settings.AUTOTHROTTLE_TARGET_CONCURRENCY}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=400)
    parser.add_argument("--limit", type=int, default=20, help="requests per second")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds")
    parser.add_argument("--cap", type=float, default=240.0, help="seconds per crawl")
    parser.add_argument("--only", default="", help="part of a contestant's name")
    options = parser.parse_args()
    describe(options)
    print("\n### 429 without Retry-After\n")
    compare(options, None)
    print("\n### 429 with Retry-After, in whole seconds rounded up\n")
    compare(options, lambda wait: str(math.ceil(wait)))


if __name__ == "__main__":
    main()
