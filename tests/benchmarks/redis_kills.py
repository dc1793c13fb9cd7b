"""What is lost, and what is fetched twice, when processes with one queue are killed.

    python -m tests.benchmarks.redis_kills [kills]

Three processes crawl with scrapy-redis: one page with very many links, and these. One
of them is killed at a time, and another one started in its place.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.crawl.test_scrapy_redis import ENV, shared
from tests.support.crawl import start_crawl
from tests.support.redis_server import RedisServer
from tests.support.site import Answer, Site
from tests.support.spiders import Links

if TYPE_CHECKING:
    from tests.support.crawl import RunningCrawl

PROCESSES = 3
AT_ONCE = 8
LINKS = 1000
PER_ROUND = 10


def one_round(folder: Path, chance: Random, kills: int) -> tuple[int, int, int]:
    """Return how many were killed, how many pages were never parsed, and how many
    times a page was fetched that had been fetched before."""
    hub = "".join(f'<a href="/leaf/{n}">.</a>' for n in range(LINKS)).encode()
    leaves = {f"/leaf/{n}": Answer(body=b"<html></html>") for n in range(LINKS)}
    named = {"/hub": Answer(body=b"<html>%s</html>" % hub), **leaves}
    killed = 0
    with Site(named=named) as site, RedisServer() as redis, ExitStack() as stack:
        limits = {"127.0.0.1": {"limit": "40/s", "adaptive": False}}
        settings: dict[str, Any] = shared(
            redis,
            POLITENESS_LIMITS=limits,
            CONCURRENT_REQUESTS=AT_ONCE,
            LOG_LEVEL="INFO",
        )

        def start() -> RunningCrawl:
            running = start_crawl(
                Links,
                urls=[f"{site.url}/hub"],
                settings=settings,
                env=ENV,
                done=str(folder / "done"),
            )
            return stack.enter_context(running)

        running = [start() for _ in range(PROCESSES)]
        site.wait_for_arrivals(1)
        while killed < kills:
            # The first ones while the page with the links is parsed.
            time.sleep(chance.uniform(0.0, 0.5 if killed < kills / 2 else 2.0))
            victim = running.pop(chance.randrange(PROCESSES))
            assert victim.process.poll() is None, "it came to its end too early"
            victim.kill()
            victim.process.wait()
            killed += 1
            running.append(start())
        for crawl in running:
            crawl.wait(timeout=900)
        fetched = len(site.arrivals)
    lines = (folder / "done").read_text("utf-8").splitlines()
    parsed = {line.split()[0] for line in lines}
    return killed, LINKS + 1 - len(parsed), fetched - LINKS - 1


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    chance = Random(1)
    sums = [0, 0, 0]
    while sums[0] < kills:
        with tempfile.TemporaryDirectory() as folder:
            found = one_round(Path(folder), chance, min(PER_ROUND, kills - sums[0]))
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        print(f"  killed {found[0]}: {found[1]} lost, {found[2]} again", flush=True)
    print(
        f"{sums[0]} processes killed, each with at most {AT_ONCE} downloads: {sums[1]} "
        f"pages lost, {sums[2]} fetched again"
    )


if __name__ == "__main__":
    main()
