"""Real crawls behind limits that they do not know, against the fastest possible ones.

    python -m tests.benchmarks.crawls [--pages 1000] [--only moving queue] [--times 3]

Counted by the site, from the first request on to the last. A machine that is busy
with other things makes the figures worse.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scrapy

from tests.crawl import crawl
from tests.settings import SEARCHING
from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.site import Quota

# Share of the fastest possible crawl, refusals per 100 pages.
LEAST_SHARE = 0.85
MOST_REFUSALS = 1.0


def _two_second_window(quota: Quota) -> Mapping[str, str]:
    return {
        "RateLimit": f'"default";r={quota.remaining};t={math.ceil(quota.reset_after)}',
        "RateLimit-Policy": f'"default";q={quota.limit};w=2',
    }


@dataclass(frozen=True)
class Row:
    """``rate`` is what the site manages or allows, in pages per second."""

    name: str
    site: dict[str, Any]
    rate: float


ROWS = [
    Row("moving window 20/s, nothing told", {"limit": "20/second"}, 20.0),
    Row(
        "fixed window 40/2 s, RateLimit headers",
        {
            "limit": "40/2 seconds",
            "window": "fixed",
            "quota_headers": _two_second_window,
        },
        20.0,
    ),
    Row(
        "4 connections, 150 ms a page",
        {"limit_in_flight": 4, "latency": 0.15},
        4 / 0.15,
    ),
    Row("queue of 1 worker, 40 ms a page", {"workers": 1, "latency": 0.04}, 25.0),
    Row("queue of 4 workers, 160 ms a page", {"workers": 4, "latency": 0.16}, 25.0),
]


@dataclass(frozen=True)
class Score:
    pages: int
    fetched: int
    seconds: float
    refusals: int
    share: float

    @property
    def is_good(self) -> bool:
        few = 100 * self.refusals <= MOST_REFUSALS * self.pages
        return self.fetched == self.pages and few and self.share >= LEAST_SHARE


def run(row: Row, pages: int) -> Score:
    with Site(pages, **row.site) as site:
        found = crawl(urls=site.page_urls(), settings=SEARCHING, timeout=600)
        arrivals = site.arrivals
        refusals = site.refusals()
    seconds = arrivals[-1].at - arrivals[0].at
    fetched = sum("error" not in item for item in found.items)
    return Score(pages, fetched, seconds, refusals, pages / row.rate / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    print(f"Scrapy {scrapy.__version__}, {options.pages} pages, {SEARCHING}\n")
    print("| | fetched | seconds | fastest possible | share of it | refusals | |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for row in ROWS:
        if not any(part in row.name for part in options.only):
            continue
        for _ in range(options.times):
            score = run(row, options.pages)
            print(
                f"| {row.name} | {score.fetched} | {score.seconds:.1f} "
                f"| {options.pages / row.rate:.1f} | {score.share:.3f} "
                f"| {score.refusals} | {'+' if score.is_good else '-'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
