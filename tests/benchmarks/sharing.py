"""What one Redis server carries, and what sharing a budget costs a crawl.

    python -m tests.benchmarks.sharing [--seconds 3] [--pages 600] [--only permits]

Permits per second of one process, with one permit a round trip and with more; the
memory that a host takes in Redis; crawls of the same pages behind the same limit by
one process without Redis, by one and by four with it; a crawl at a fixed rate that
nothing holds up, without Redis and with it, alternately; and how much of a limit is
used with a Redis that is far away. All distances are measured at the same time, so that
a busy machine slows down all of them, and none of them alone.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

from scrapy_politeness.sharing.redis.connection import Call, Connection
from scrapy_politeness.sharing.redis.keys import Keys
from tests.support.crawl import Crawl, crawl, start_crawl
from tests.support.redis_server import RedisServer
from tests.support.settings import NO_ROBOTS, SEARCHING, fixed
from tests.support.site import Site
from tests.support.spiders import Broad
from tests.support.tcp_proxy import TcpProxy

LIMIT = 20.0
FIXED_RATE = 200
ROUNDS = 3
# Seconds of a round trip; and how long it takes until all processes are at work.
DISTANCES = (0.0, 0.001, 0.05, 0.1, 0.2, 0.4)
WARM_UP = 15.0


def grant(host: int, wanted: int) -> Call:
    keys = Keys(one_node=False).of(f"slot:host{host}.example")
    horizon, longest = 200_000, 3_600_000_000
    # So fast that the budget itself refuses nothing.
    arguments: list[str | int] = [
        *("me", wanted, wanted, horizon, 0, 0, 0, longest, 0, 0, 0, longest, ""),
        *(1, 0, 1, 0, 0, -1, 1, "", 0),
    ]
    return Call("grant", [keys.summary, keys.record, keys.members], arguments)


async def permits_per_second(url: str, seconds: float, hosts: int, each: int) -> float:
    connection = Connection(url)
    granted, n = 0, 0
    began_at = time.perf_counter()
    while (elapsed := time.perf_counter() - began_at) < seconds:
        calls = [grant((n + host) % 1000, each) for host in range(hosts)]
        granted += sum(len(answer[6]) for answer in await connection.run(calls))
        n += hosts
    await connection.close()
    return granted / elapsed


def measure_permits(seconds: float) -> None:
    print("| permits per second of one process | |\n|---|--:|")
    with RedisServer() as server:
        for title, hosts, each in (
            ("one a round trip", 1, 1),
            ("one each of 32 hosts a round trip", 32, 1),
            ("leases of 4 (20/s)", 1, 4),
            ("leases of 40 (200/s)", 1, 40),
        ):
            rate = asyncio.run(permits_per_second(server.url, seconds, hosts, each))
            print(f"| {title} | {rate:,.0f} |", flush=True)


def measure_memory(hosts: int = 1000) -> None:
    """Hosts that were visited once, and one whose limit was found."""
    with RedisServer() as server, Site(200, limit="20/second") as site:
        client = server.client()
        settings = {**SEARCHING, "POLITENESS_REDIS_URL": server.url}
        before = used_memory(client)
        with Site(1) as proxy:
            crawl(Broad, settings=settings, hosts=hosts, proxy=proxy.url, timeout=300)
        bytes_per_host = (used_memory(client) - before) / hosts
        print(f"\na host that was visited once: {bytes_per_host:,.0f} bytes")
        work = client.info("commandstats")["cmdstat_evalsha"]
        print(f"{work['calls'] / hosts:.1f} calls for it", end=", ")
        print(f"{work['usec_per_call']:.0f} µs of the server each")
        crawl(urls=site.page_urls(), settings=settings)
        keys = Keys(one_node=False).of("slot:127.0.0.1")
        print(f"all details of a host: {client.memory_usage(keys.record):,} bytes")
        print(f"in short: {client.memory_usage(keys.summary):,} bytes\n")


def used_memory(client: Any) -> int:
    return int(client.info("memory")["used_memory"])


def run_crawls(processes: int, pages: int) -> tuple[float, float, int, int]:
    """Return seconds, the rate when settled, refusals and pages fetched."""
    with ExitStack() as stack:
        site = stack.enter_context(Site(pages, limit=f"{LIMIT:.0f}/second"))
        settings = dict(SEARCHING)
        if processes:
            server = stack.enter_context(RedisServer())
            settings["POLITENESS_REDIS_URL"] = server.url
        number = max(1, processes)
        urls = site.page_urls()
        running = [
            stack.enter_context(start_crawl(urls=urls[n::number], settings=settings))
            for n in range(number)
        ]
        for one in running:
            one.wait(600)
        arrivals = site.arrivals
        first, last = arrivals[0].at, arrivals[-1].at
        served = [a.at for a in arrivals if a.status == 200]
        late = [at for at in served if at > first + 0.75 * (last - first)]
        settled = (len(late) - 1) / (late[-1] - late[0])
        return last - first, settled, site.refusals(), len(site.pages_served())


def measure_crawls(pages: int) -> None:
    ideal = pages / LIMIT
    print(f"{pages} pages behind a sliding window of {LIMIT:.0f}/s, silent")
    print("| | fetched | share of the fastest possible | settled at | refusals |")
    print("|---|--:|--:|--:|--:|")
    for title, processes in (
        ("one process, no Redis", 0),
        ("one process", 1),
        ("four processes", 4),
    ):
        seconds, settled, refusals, fetched = run_crawls(processes, pages)
        print(
            f"| {title} | {fetched} | {ideal / seconds:.3f} | {settled:.1f}/s "
            f"| {refusals} |",
            flush=True,
        )


def measure_overhead(pages: int) -> None:
    """At a rate that one process can just manage."""
    print(f"\n{pages} pages at {FIXED_RATE}/s")
    pace: list[float] = []
    work: list[float] = []
    with RedisServer() as server, Site(pages) as site:
        for _ in range(ROUNDS):
            by_memory = _at_fixed_rate(site, {})
            by_redis = _at_fixed_rate(site, {"POLITENESS_REDIS_URL": server.url})
            pace.append(by_memory.seconds / by_redis.seconds)
            work.append(by_redis.cpu_seconds / by_memory.cpu_seconds)
            server.client().flushall()
    print(f"pages per second, Redis to memory: {median(pace):.3f} {pace}")
    print(f"CPU seconds, Redis to memory: {median(work):.2f} {work}")


def _at_fixed_rate(site: Site, more: dict[str, Any]) -> Crawl:
    settings = {**fixed(FIXED_RATE), "LOG_LEVEL": "INFO", **more}
    settings |= {"CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 32}
    return crawl(urls=site.page_urls(), settings=settings, timeout=300)


def shares_of(rate: int, processes: int, seconds: float) -> list[float]:
    """Return how much of the limit is used at each of the ``DISTANCES``."""
    pages = rate * int(seconds + 2 * WARM_UP)
    limit = {"limit": f"{rate}/s", "adaptive": False}
    settings = {"POLITENESS_LIMITS": {"127.0.0.1": limit}, **NO_ROBOTS}
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        sites = []
        for n, round_trip in enumerate(DISTANCES):
            proxy = stack.enter_context(TcpProxy(server.port, round_trip))
            site = stack.enter_context(Site(pages))
            sites.append(site)
            settings["POLITENESS_REDIS_URL"] = f"redis://127.0.0.1:{proxy.port}/{n}"
            for part in range(processes):
                urls = site.page_urls()[part::processes]
                stack.enter_context(start_crawl(urls=urls, settings=settings))
        while not all(site.arrivals for site in sites):
            time.sleep(0.1)
        time.sleep(WARM_UP)
        before = [len(site.arrivals) for site in sites]
        began_at = time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - began_at
        after = [len(site.arrivals) for site in sites]
    pairs = zip(before, after, strict=True)
    return [(late - early) / elapsed / rate for early, late in pairs]


def measure_distance(seconds: float) -> None:
    titles = (f"{1000 * round_trip:.0f} ms" for round_trip in DISTANCES)
    print(f"\n| share of the limit | {' | '.join(titles)} |")
    print("|---|" + "--:|" * len(DISTANCES), flush=True)
    for rate in (1, 5, 20):
        for processes in (1, 4):
            shares = shares_of(rate, processes, seconds)
            row = " | ".join(f"{share:.2f}" for share in shares)
            print(f"| {rate}/s, {processes} | {row} |", flush=True)


PARTS = ("permits", "memory", "crawls", "overhead", "distance")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--pages", type=int, default=600)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    if "permits" in options.only:
        measure_permits(options.seconds)
    if "memory" in options.only:
        measure_memory()
    if "crawls" in options.only:
        measure_crawls(options.pages)
    if "overhead" in options.only:
        measure_overhead(2 * options.pages)
    if "distance" in options.only:
        measure_distance(10 * options.seconds)


if __name__ == "__main__":
    main()
