"""Two limits at once, "5/2s" and "60/m", kept by one process and by three together.

python -m tests.benchmarks.windows [pages] [processes]

Judged by what the site has seen: the most that arrived in any window of either length.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from tests.support.crawl import start_crawl
from tests.support.redis_server import RedisServer
from tests.support.settings import NO_ROBOTS
from tests.support.site import Site

LIMITS = {"5/2s": 2.0, "60/m": 60.0}
TIMEOUT = 3600.0


def main(pages: int, processes: int) -> None:
    limits = {"127.0.0.1": {"limit": [*LIMITS], "adaptive": False}}
    with ExitStack() as stack:
        server = stack.enter_context(Site(pages))
        settings = {**NO_ROBOTS, "POLITENESS_LIMITS": limits}
        if processes > 1:
            redis = stack.enter_context(RedisServer())
            settings["POLITENESS_REDIS_URL"] = redis.url
        urls = server.page_urls()
        running = [
            stack.enter_context(start_crawl(urls=urls[n::processes], settings=settings))
            for n in range(processes)
        ]
        for each in running:
            each.wait(TIMEOUT)
        times = [arrival.at for arrival in server.arrivals]
        jitter = server.jitter
    print(f"{len(times)} pages in {times[-1] - times[0]:.0f} s by {processes}")
    for limit, seconds in LIMITS.items():
        found = [_most_in(length, times) for length in (seconds, seconds - jitter)]
        print(
            f"{limit}: at most {found[0]}, and {found[1]} in {1000 * jitter:.0f} ms "
            "less, by which the machine may have been late"
        )


def _most_in(seconds: float, times: list[float]) -> int:
    return max(sum(at <= other < at + seconds for other in times) for at in times)


if __name__ == "__main__":
    pages, processes = (*map(int, sys.argv[1:]), 200, 1)[:2]
    main(pages, processes)
