"""What the priority queue costs, and what it spares the fast hosts.

    python -m tests.benchmarks.queue

Prints the cost of a pop with a push for ever more slots, beside Scrapy's own queue;
the memory of a million slots that wait; and a crawl of 50 slow hosts beside 5 fast
ones, with and without the add-on.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import tempfile
import time
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.squeues import (
    FifoMemoryQueue,
    LifoMemoryQueue,
    PickleFifoDiskQueue,
    PickleLifoDiskQueue,
)
from scrapy.utils.reactor import install_reactor, is_reactor_installed
from scrapy.utils.test import get_crawler

from scrapy_politeness import PolitePriorityQueue
from tests.benchmarks.compare import without_jitter
from tests.support.crawl import STOCK, crawl
from tests.support.site import Site

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

SLOW = [f"127.0.1.{number}" for number in range(1, 51)]
FAST = [f"127.0.2.{number}" for number in range(1, 6)]
SLOW_SPACING, SLOW_PAGES = 5.0, 4
FAST_SPACING, FAST_PAGES = 0.05, 200


def make_crawler() -> Crawler:
    if not is_reactor_installed():
        install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    addon = {"scrapy_politeness.Addon": 500}
    crawler = get_crawler(Spider, {"ADDONS": addon, "TELNETCONSOLE_ENABLED": False})
    crawler.spider = Spider(name="benchmark")
    crawler.engine = crawler._create_engine()
    return crawler


def ours(folder: str = "") -> Any:
    queues = (LifoMemoryQueue, FifoMemoryQueue)
    if folder:
        queues = (PickleLifoDiskQueue, PickleFifoDiskQueue)
    return PolitePriorityQueue.from_crawler(
        make_crawler(), queues[0], folder, start_queue_cls=queues[1]
    )


def scrapys() -> Any:
    return DownloaderAwarePriorityQueue.from_crawler(
        make_crawler(), LifoMemoryQueue, "", start_queue_cls=FifoMemoryQueue
    )


def cost(queue: Any, slots: int, rounds: int) -> float:
    """Return the microseconds of a pop with a push, with ``slots`` slots waiting."""
    for number in range(slots):
        queue.push(Request(f"http://h{number}.example/"))
    fresh = [Request(f"http://n{number}.example/") for number in range(rounds)]
    gc.collect()
    begin = time.perf_counter()
    for request in fresh:
        queue.pop()
        queue.push(request)
    return (time.perf_counter() - begin) / rounds * 1e6


def print_costs() -> None:
    print("| slots | ours, memory | ours, disk | Scrapy's, memory | ratio |")
    print("|--:|--:|--:|--:|--:|")
    for slots in (100, 1_000, 10_000, 100_000):
        memory = cost(ours(), slots, 3_000)
        with tempfile.TemporaryDirectory() as folder:
            disk = cost(ours(folder), slots, 1_000)
        stock = cost(scrapys(), slots, max(5, 1_000_000 // slots // 10))
        print(
            f"| {slots:,} | {memory:.0f} µs | {disk:.0f} µs | {stock:,.0f} µs "
            f"| {stock / memory:,.0f} |",
            flush=True,
        )


def _grow(kind: str, slots: int, answer: Any) -> None:
    queue = ours() if kind == "ours" else scrapys()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(slots):
        queue.push(Request(f"http://h{number}.example/"))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    popped = 0
    if kind == "ours":
        popped = sum(queue.pop() is not None for _ in range(1_000))
    answer.put((grown * 1024 / slots, popped))


def print_memory(slots: int) -> None:
    def per_slot(kind: str) -> tuple[float, int]:
        context = multiprocessing.get_context("spawn")
        answer = context.Queue()
        process = context.Process(target=_grow, args=(kind, slots, answer))
        process.start()
        result: tuple[float, int] = answer.get()
        process.join()
        return result

    (mine, popped), (stock, _) = per_slot("ours"), per_slot("scrapys")
    print(
        f"\n{slots:,} slots with one request each: {mine:.0f} bytes a slot, "
        f"{mine - stock:.0f} more than Scrapy's own queue; "
        f"1,000 pops gave {popped} requests"
    )


def print_crawl(name: str, settings: dict[str, Any]) -> None:
    with Site(FAST_PAGES, hosts=SLOW + FAST) as site:
        urls = [url for host in SLOW for url in site.page_urls(host)[:SLOW_PAGES]]
        urls += [url for host in FAST for url in site.page_urls(host)]
        crawl(
            urls=urls,
            settings={"LOG_LEVEL": "INFO", **settings},
            timeout=240,
        )
        begin = site.arrivals[0].at
        fast = max(a.at for a in site.arrivals if a.host in FAST) - begin
        whole = site.arrivals[-1].at - begin
        served = len([a for a in site.arrivals if a.status == 200])
    print(f"| {name} | {served} | {fast:.1f} s | {whole:.1f} s |", flush=True)


def print_crawls() -> None:
    spacings = dict.fromkeys(SLOW, SLOW_SPACING) | dict.fromkeys(FAST, FAST_SPACING)
    slots = {host: {"delay": spacing} for host, spacing in spacings.items()}
    limits = {
        host: {"start_rate": 1 / spacing, "max_rate": 1 / spacing}
        for host, spacing in spacings.items()
    }
    ideal_fast = (FAST_PAGES - 1) * FAST_SPACING
    ideal = (SLOW_PAGES - 1) * SLOW_SPACING
    print("\n| | pages | fast hosts done after | all done after |")
    print("|---|--:|--:|--:|")
    print(f"| ideal | 1200 | {ideal_fast:.1f} s | {ideal:.1f} s |")
    print_crawl("stock Scrapy", {**STOCK, **without_jitter(), "DOWNLOAD_SLOTS": slots})
    print_crawl(
        "scrapy-politeness", {"POLITENESS_ROBOTS": False, "POLITENESS_LIMITS": limits}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=1_000_000)
    options = parser.parse_args()
    print_costs()
    print_memory(options.slots)
    print_crawls()


if __name__ == "__main__":
    main()
