"""Crawls of servers that mean harm, in full size, one after the other.

    python -m tests.benchmarks.hostile [--only robots 429] [--stock] [--size small]

Each has a host of its own with 1,000 pages that are all waited for, or 10,000 hosts.
All settings are Scrapy's and the add-on's own, but times: an hour is a second here, so
that a day of patience is over within half a minute. ``--stock`` is without the add-on.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from typing import Any

import scrapy

from tests.support.crawl import STOCK, crawl
from tests.support.siege import (
    ATTACKS,
    FULL,
    PEAK,
    SMALL,
    STALL,
    Attack,
    Besieged,
    Siege,
    Size,
)

_TIMES: dict[str, Any] = {
    "POLITENESS_RETRY_AFTER_MAX": 1,
    "POLITENESS_GIVE_UP_AFTER": 24,
    "POLITENESS_BACKOFF_BASE": 0.1,
    "POLITENESS_BACKOFF_MAX": 0.3,
    "POLITENESS_START_RATE": 100,
    "POLITENESS_MIN_RATE": 10,
    "POLITENESS_MAX_RATE": 1000,
    "ROBOTSTXT_OBEY": True,
    "LOG_LEVEL": "INFO",
}


def _run(attack: Attack, size: Size, settings: dict[str, Any]) -> str:
    if "robots.txt" in attack.name and 200 in attack.ends:
        size = replace(size, pages=20)  # its Crawl-delay is kept
    with Siege((attack,), size) as siege:
        requests = siege.requests()
        found = crawl(Besieged, requests=requests, settings=settings, timeout=3600)
        arrivals = len(siege.sites[attack].arrivals)
    ends = Counter(item.get("status") or item["error"] for item in found.items)
    came_to = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    return (
        f"| {attack.name} | {len(requests)} | {arrivals} | {came_to} "
        f"| {found.seconds:.0f} | {found.stats[PEAK]:.0f} "
        f"| {found.stats.get(STALL, 0.0):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    options = parser.parse_args()
    size = FULL if options.size == "full" else SMALL
    settings = {**_TIMES, **(STOCK if options.stock else {})}
    print(f"Scrapy {scrapy.__version__}, {size}\n")
    print("| | requests | arrived | came to | seconds | MB at most | longest stall |")
    print("|---|--:|--:|---|--:|--:|--:|")
    for attack in ATTACKS:
        if any(part in attack.name for part in options.only):
            print(_run(attack, size, settings), flush=True)


if __name__ == "__main__":
    main()
