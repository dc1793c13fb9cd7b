"""Real crawls of hosts that they do not know, against the fastest possible ones.

    python -m tests.benchmarks.crawls [--table failures] [--only sliding queue]
        [--pages 1000] [--times 3] [--seed 7] [--jobs 2] [--timeout 600]

Three tables: ``limits``, which the hosts do not announce; ``failures``, whatever the
rate; and ``defaults``, without any settings, where a crawl may take at most twice as
long as necessary.

The site counts, from the first request to the last. A busy machine makes the figures
worse.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import scrapy

from tests.benchmarks.crawl_rows import ROWS, TABLES, Row
from tests.support.crawl import Crawl, start_crawl
from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.site import Arrival

# Per 100 pages, apart from injected failures.
MOST_REFUSALS = 1.0


@dataclass(frozen=True)
class Score:
    """``pages`` were asked for; ``lost`` of them nobody can get, and the crawl ``got``
    so many. ``seconds`` are those until the last one was got, or until the crawl was
    over in ``ended_after``, as the row wants it. ``cuts`` is None, and ``ended_after``
    too, for a crawl that was not done in time."""

    row: Row
    pages: int
    lost: int
    got: int
    seconds: float
    ended_after: float | None
    refusals: int
    over_limit: int
    cuts: int | None

    @property
    def share(self) -> float:
        return self.row.fastest(self.pages) / self.seconds

    @property
    def is_good(self) -> bool:
        few = 100 * self.over_limit <= MOST_REFUSALS * self.pages
        return (
            self.ended_after is not None
            and self.got == self.pages - self.lost
            and few
            and self.share >= self.row.least_share
            and not (self.row.no_cuts and self.cuts)
        )

    def __str__(self) -> str:
        is_done = self.ended_after is not None
        took = f"{self.seconds:.1f}" if is_done else f"not done, {self.seconds:.0f}"
        cells = (
            self.row.name,
            f"{self.got} of {self.pages - self.lost}",
            took,
            "" if self.ended_after is None else f"{self.ended_after:.1f}",
            f"{self.row.fastest(self.pages):.1f}",
            f"{self.share:.3f}" if is_done else "",
            f"{self.row.least_share:.2f}",
            self.refusals,
            self.over_limit,
            "" if self.cuts is None else self.cuts,
            "+" if self.is_good else "-",
        )
        return f"| {' | '.join(str(cell) for cell in cells)} |"


HEAD = """
| %s | got | seconds | to the end | fastest | share | at least | refusals \
| over the limit | cuts | |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"""


def run(row: Row, pages: int | None, timeout: float) -> Score:
    with Site(pages or row.pages, **row.site) as site:
        urls = row.urls(site)
        with start_crawl(row.spider, urls=urls, settings=row.settings) as running:
            try:
                found = running.wait(timeout)
            except TimeoutError:
                found = None
        arrivals = site.arrivals
    paths = [urlsplit(url).path for url in urls]
    return _score(row, paths, arrivals, found, timeout)


def _score(
    row: Row,
    paths: Sequence[str],
    arrivals: Sequence[Arrival],
    found: Crawl | None,
    timeout: float,
) -> Score:
    asked = [a for a in arrivals if a.path != "/robots.txt"]
    refused = [a for a in asked if a.status != 200]
    beyond = sum(not a.is_injected for a in refused)
    score = partial(
        Score,
        row=row,
        pages=len(paths),
        lost=row.lost(paths),
        refusals=len(refused),
        over_limit=beyond,
    )
    if found is None:
        got = len({a.path for a in asked if a.status == 200})
        return score(got=got, seconds=timeout, ended_after=None, cuts=None)
    if found.returncode:
        raise RuntimeError(f"{row.name}: the crawl has failed\n{found.log}")
    got = sum("error" not in item for item in found.items)
    began_at = arrivals[0].at
    ended_after = arrivals[-1].at - began_at
    last_at = max(a.at for a in asked if a.status == 200)
    return score(
        got=got,
        seconds=ended_after if row.to_the_end else last_at - began_at,
        ended_after=ended_after,
        cuts=found.stats.get("politeness/slowdowns", 0),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names")
    parser.add_argument("--pages", type=int, help="instead of each row's own number")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seed", type=int, help="of the random failures")
    parser.add_argument("--jobs", type=int, default=1, help="crawls at a time")
    parser.add_argument("--timeout", type=float, default=600.0, help="for each crawl")
    options = parser.parse_args()
    print(f"Scrapy {scrapy.__version__}")
    with ThreadPoolExecutor(options.jobs) as pool:
        for table in options.table:
            rows = [
                row if options.seed is None else row.with_seed(options.seed)
                for row in ROWS
                if row.table == table and any(part in row.name for part in options.only)
                for _ in range(options.times)
            ]
            if rows:
                print(HEAD % table, flush=True)
            scores = pool.map(run, rows, repeat(options.pages), repeat(options.timeout))
            for score in scores:
                print(score, flush=True)


if __name__ == "__main__":
    main()
