"""What it costs to visit very many hosts once.

    python -m tests.benchmarks.memory [hosts]

Each host is visited once, through one proxy on loopback that answers for all of them.
The memory of the crawl at its start and at its end, with the add-on, with all slots
kept in memory, and without the add-on.
"""

from __future__ import annotations

import sys

from tests.support.crawl import STOCK, crawl
from tests.support.site import Site
from tests.support.spiders import AT_ONCE, Broad

HOSTS = 100_000


def main() -> None:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else HOSTS
    common = {
        "LOG_LEVEL": "WARNING",
        "CONCURRENT_REQUESTS": AT_ONCE,
        # As fast as can be: robots.txt and the page follow each other at once.
        "POLITENESS_START_RATE": 1000,
        "POLITENESS_MAX_RATE": 1000,
        # Its list of robots.txt files grows for ever.
        "ROBOTSTXT_OBEY": False,
    }
    print(f"{hosts} hosts, each visited once")
    print(f"{'':24}{'slots':>8}{'MB after a tenth':>18}{'MB at the end':>15}")
    for name, settings in (
        ("without the add-on", STOCK),
        ("with it", {}),
        ("with it, none forgotten", {"POLITENESS_MAX_SLOTS": hosts}),
    ):
        with Site(1) as site:
            result = crawl(
                Broad,
                settings={**common, **settings},
                hosts=hosts,
                proxy=site.url,
                timeout=3600,
            )
            early, late = result.items
            print(
                f"{name:24}{late['slots']:8}{early['memory']:18.1f}"
                f"{late['memory']:15.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
