"""Requests that must not be sent before a time of their own, in a crawl that is killed.

    python -m tests.benchmarks.not_before [requests] [seconds] [kills]

The times are drawn at random, half of them are given in seconds and half as datetimes.
Then, what it costs to hold ten times as many in memory and on disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from scrapy import Request

from tests.benchmarks.queue import ours
from tests.support.crawl import start_crawl
from tests.support.settings import NO_ROBOTS
from tests.support.site import Answer, Site
from tests.support.spiders import Later, resident_megabytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.crawl import Crawl


@dataclass
class Punctuality:
    """In seconds, by the server's log; ``again`` is how many arrived twice."""

    lost: int
    again: int
    earliest: float
    median: float
    latest: float
    last_run: Crawl


def crawl_later(
    number: int, first: float, seconds: float, kills: int, settings: Mapping[str, Any]
) -> Punctuality:
    """Crawl pages at random times of the ``seconds`` after the ``first`` ones."""
    chance = Random(1)
    with Site(answer=lambda path, nth: Answer()) as site:
        began_at = time.time() + first
        times = {
            f"{site.url}/{n}": began_at + chance.uniform(0.0, seconds)
            for n in range(number)
        }
        for _ in range(kills):
            with start_crawl(Later, settings=settings, times=times) as running:
                running.wait_for_log("Spider opened")
                time.sleep((first + seconds) / (kills + 2))
                running.kill()
                running.process.wait()
        with start_crawl(Later, settings=settings, times=times) as running:
            last_run = running.wait(timeout=first + seconds + 300)
        arrivals = site.arrivals
        to_wall_clock = time.time() - time.monotonic()
        late = sorted(
            arrival.at + to_wall_clock - times[site.url + arrival.path]
            for arrival in arrivals
        )
    lost = number - len({arrival.path for arrival in arrivals})
    again = len(arrivals) - number + lost
    return Punctuality(lost, again, late[0], late[len(late) // 2], late[-1], last_run)


def settings_for(folder: str) -> dict[str, Any]:
    return {
        "JOBDIR": folder,
        "POLITENESS_START_RATE": 10_000,
        "POLITENESS_MAX_RATE": 10_000,
        "LOG_LEVEL": "INFO",
        **NO_ROBOTS,
    }


def costs(folder: str, number: int) -> str:
    """What it takes to hold that many requests, and to look at them."""
    queue = ours(folder)
    chance = Random(1)
    memory, began_at = resident_megabytes(), time.process_time()
    for n in range(number):
        meta = {"politeness_not_before": chance.uniform(1000, 2000)}
        queue.push(Request(f"http://h{n % 10}.example/{n}", meta=meta))
    pushed = (time.process_time() - began_at) / number * 1e6
    memory = resident_megabytes() - memory
    began_at = time.process_time()
    for _ in range(1000):
        assert queue.pop() is None
    looked = (time.process_time() - began_at) * 1e3
    queue.close()
    return (
        f"{memory:.0f} MB, {pushed:.0f} µs for each push, {looked:.1f} µs for a pop "
        "that finds nothing due"
    )


def main() -> None:
    number, seconds, kills = (
        int(sys.argv[n]) if len(sys.argv) > n else default
        for n, default in ((1, 10_000), (2, 150), (3, 5))
    )
    for where in ("in memory", "on disk"):
        with tempfile.TemporaryDirectory() as folder:
            cost = costs(folder if where == "on disk" else "", number * 10)
        print(f"{number * 10} held {where}: {cost}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = crawl_later(number, 20.0, seconds, kills, settings_for(folder))
    run = found.last_run
    print(
        f"{number} requests in {seconds} s, {kills} kills: {found.lost} lost, "
        f"{found.again} again; earliest {found.earliest * 1000:.1f} ms, median "
        f"{found.median * 1000:.0f} ms, latest {found.latest:.2f} s after their time. "
        f"The last run took {run.cpu_seconds:.1f} s of CPU in {run.seconds:.1f} s, and "
        f"{run.stats.get('memusage/max', 0) / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
