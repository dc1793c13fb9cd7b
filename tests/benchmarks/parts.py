"""A host with a limit for its search and another for the rest, crawled for real, or on
virtual time.

python -m tests.benchmarks.parts            # without a setting
python -m tests.benchmarks.parts --pattern  # with POLITENESS_SLOTS, and limits
python -m tests.benchmarks.parts --random   # refusals fall on random pages
python -m tests.benchmarks.parts --virtual 20 [--pattern]  # so many seeds
"""

from __future__ import annotations

import argparse
import math
from random import Random
from statistics import median
from typing import Any

from scrapy_politeness.simulator import SlidingWindow
from tests.support.crawl import crawl
from tests.support.parted_host import PartedHost
from tests.support.site import Answer, Limit, Site

PAGES = 1818
SEARCHES = 182
SPLIT = "slot of its own"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pattern", action="store_true")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0, help="of how many pages")
    parser.add_argument("--virtual", type=int, metavar="SEEDS")
    options = parser.parse_args()
    if options.virtual:
        virtual(options.virtual, is_known=options.pattern)
        return
    random = Random(1)
    parts = {True: Limit("1/1second", "moving"), False: Limit("10/1second", "moving")}

    def judge(path: str, nth: int) -> Answer | None:
        if path == "/robots.txt":
            return None
        if options.random:
            return Answer(429 if nth == 1 and random.random() < 0.02 else 200)
        accepted = parts[path.startswith("/search")].accepts("")
        return Answer() if accepted else Answer(429)

    settings: dict[str, Any] = {"LOG_LEVEL": "INFO"}
    if options.pattern:
        settings["POLITENESS_SLOTS"] = [(r"/search/", "search")]
        settings["POLITENESS_LIMITS"] = {
            "search": {"limit": "1/s"},
            "127.0.0.1": {"limit": "10/s"},
        }
    with Site(answer=judge) as server:
        paths = [f"/wiki/{n}" for n in range(int(PAGES * options.scale))]
        paths += [f"/search/{n}" for n in range(int(SEARCHES * options.scale))]
        random.shuffle(paths)
        result = crawl(
            urls=[server.url + path for path in paths], settings=settings, timeout=3600
        )
        arrivals = [a for a in server.arrivals if a.path != "/robots.txt"]
    began_at = arrivals[0].at
    print(f"{len(result.items)} pages in {result.seconds:.0f} s", end=", ")
    print(f"{sum(a.status == 429 for a in arrivals)} refusals")
    for title, prefix, allowed in (("wiki", "/wiki", 10.0), ("search", "/search", 1.0)):
        own = [a for a in arrivals if a.path.startswith(prefix)]
        served = [a for a in own if a.status == 200]
        late = [a for a in served if a.at > began_at + 120]
        span = served[-1].at - began_at - 120
        print(
            f"{title}: {len(served)} served in {served[-1].at - began_at:.0f} s, "
            f"{sum(a.status == 429 for a in own)} refusals"
            + (f", after 2 minutes {len(late) / span / allowed:.2f}" if late else "")
        )
        refused = [f"{a.at - began_at:.0f}" for a in own if a.status == 429]
        print(f"  refused at {', '.join(refused)} s")
    for line in result.log.splitlines():
        if SPLIT in line:
            print(line)


def virtual(seeds: int, *, is_known: bool) -> None:
    """Of each figure, print the median and the worst."""
    rows = []
    for seed in range(seeds):
        limits = {"/search": SlidingWindow(1, 1), "/wiki": SlidingWindow(10, 1)}
        host = PartedHost(limits, seed=seed)
        if is_known:
            spacings = {"/search": 1.01, "/wiki": 0.101}
            host = PartedHost(limits, seed=seed, spacings=spacings)
        paths = [f"/wiki/{n}" for n in range(PAGES)]
        paths += [f"/search/{n}" for n in range(SEARCHES)]
        Random(seed).shuffle(paths)
        host.crawl(paths)
        row = {"refusals": float(len(host.refused))}
        if host.splits:
            row["found after s"] = host.splits[0][0]
        for prefix, allowed in (("/wiki", 10.0), ("/search", 1.0)):
            late = [at for at, p in host.served if p.startswith(prefix) and at > 120]
            row[f"-share of {prefix}"] = -len(late) / (late[-1] - 120) / allowed
        rows.append(row)
    for name in rows[0]:
        values = sorted(row.get(name, math.inf) for row in rows)
        print(f"{name.strip('-')}: median {abs(median(values)):.2f}", end=", ")
        print(f"worst {abs(values[-1]):.2f}")


if __name__ == "__main__":
    main()
