"""Real crawls of hosts that state their quota, each in a dialect of its own.

    python -m tests.benchmarks.quotas [--pages 300] [--limit 150] [--window 60]
        [--at-once 5]

So many hosts are crawled at once, by one crawl with the default settings. Each enforces
its limit with the package ``limits``, in fixed windows (one by itself, in those of the
calendar), and answers 429 above it. The share is that of what the limit would have
allowed from the first request to the last.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from tests.support.crawl import crawl
from tests.support.quota_dialects import DIALECTS, StatingLimiter
from tests.support.settings import NO_ROBOTS
from tests.support.site import Site


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--window", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=5)
    options = parser.parse_args()
    print("| dialect | pages | refused | seconds | share |")
    print("|---|--:|--:|--:|--:|")
    dialects = list(DIALECTS)
    for first in range(0, len(dialects), options.at_once):
        some = dialects[first : first + options.at_once]
        _run(some, options.pages, options.limit, options.window)


def _run(dialects: list[str], pages: int, limit: int, window: int) -> None:
    with ExitStack() as stack:
        sites = {}
        for nth, dialect in enumerate(dialects, 2):
            limiter = StatingLimiter(dialect, limit, window)
            site = Site(pages, hosts=[f"127.0.0.{nth}"], answer=limiter)
            sites[dialect] = stack.enter_context(site)
        urls = [site.page_urls() for site in sites.values()]
        mixed = [url for together in zip(*urls, strict=True) for url in together]
        settings = {**NO_ROBOTS, "LOG_LEVEL": "INFO", "CONCURRENT_REQUESTS": 100}
        crawl(urls=mixed, settings=settings, timeout=3600)
        for dialect, site in sites.items():
            times = [arrival.at for arrival in site.arrivals]
            seconds = times[-1] - times[0]
            share = pages / (limit / window * seconds)
            print(
                f"| {dialect} | {len(site.pages_served())} | {site.refusals()} "
                f"| {seconds:.0f} | {share:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
