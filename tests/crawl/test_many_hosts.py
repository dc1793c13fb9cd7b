"""Crawls of many hosts: nobody waits for another, nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request

from tests.support.crawl import REACTORS, Crawl, Reactor, crawl, start_crawl
from tests.support.settings import NO_ROBOTS, fixed
from tests.support.site import Answer
from tests.support.spiders import Walk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.site import Site


def fixed_rates(rates: dict[str, float]) -> dict[str, Any]:
    return {
        host: {"start_rate": rate, "max_rate": rate} for host, rate in rates.items()
    }


@pytest.mark.parametrize("reactor", REACTORS)
def test_slow_hosts_do_not_fill_the_downloader(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    slow = [f"127.0.1.{number}" for number in range(1, 25)]
    fast = "127.0.2.1"
    server = site(40, hosts=[*slow, fast])
    urls = [url for host in slow for url in server.page_urls(host)[:3]]
    urls += server.page_urls(fast)
    limits = fixed_rates({**dict.fromkeys(slow, 0.5), fast: 20})
    settings = {**NO_ROBOTS, "CONCURRENT_REQUESTS": 8, "POLITENESS_LIMITS": limits}
    result = crawl(urls=urls, settings=settings, reactor=reactor)
    assert len(result.items) == 24 * 3 + 40
    times = [a.at - server.arrivals[0].at for a in server.arrivals if a.host == fast]
    # 40 requests at 20/s, while each slow host needs 4 s.
    assert times[-1] < 3.0 + server.lost
    assert result.seconds < 5.5 + server.lost


@pytest.mark.everywhere
def test_held_requests_wait_in_the_scheduler_and_on_disk(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(30)
    settings = {
        **NO_ROBOTS,
        "POLITENESS_START_RATE": 2,
        "JOBDIR": str(tmp_path),
    }
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        server.wait_for_arrivals(3)
        running.interrupt()
        result = running.wait(timeout=20)
    # Nothing had to be handed back by the gate, nor by the downloader.
    assert "politeness/handed_back" not in result.stats
    assert result.stats["scheduler/enqueued/disk"] == 30
    assert result.stats["scheduler/dequeued/disk"] <= len(server.arrivals) + 1


def come_back_later(path: str) -> Callable[[str, int], Answer | None]:
    """Refuse ``path`` for three seconds, once for each of two hosts."""

    def judge(asked: str, nth: int) -> Answer | None:
        refused = asked == path and nth <= 2
        return Answer(429, {"Retry-After": "3"}, delay=0.3) if refused else None

    return judge


BAD, GOOD = ["127.0.1.1", "127.0.1.2"], "127.0.2.1"


@pytest.mark.parametrize(
    "options",
    [
        {"answer": come_back_later("/robots.txt")},
        {"robots": Answer(delay=3.0)},
    ],
    ids=["refused", "slow"],
)
def test_hosts_whose_robots_txt_takes_long_take_no_places(
    site: Callable[..., Site], options: dict[str, Any]
) -> None:
    bad = site(2, hosts=BAD, **options)
    good = site(20, hosts=[GOOD])
    urls = [url for host in BAD for url in bad.page_urls(host)]
    settings = fixed(20, POLITENESS_ROBOTS=True, CONCURRENT_REQUESTS=4)
    result = crawl(urls=urls + good.page_urls(GOOD), settings=settings)
    assert len(result.items) == 24
    # Both bad hosts were asked for robots.txt, and nothing else for three seconds.
    assert good.arrivals[-1].at < bad.arrivals[2].at + good.lost
    # Once, and then no more of that host until its robots.txt was there.
    assert result.stats["politeness/handed_back"] == 2
    assert min(silences(bad)) > 3 - bad.jitter


class Dawdle:
    """Keeps the second page of a bad host back until the first was refused."""

    async def process_request(self, request: Request) -> None:
        if request.url.startswith("http://127.0.1.") and request.url.endswith("/1"):
            await asyncio.sleep(1.5)


def test_what_was_on_its_way_when_the_host_refused_goes_back_to_the_scheduler(
    site: Callable[..., Site],
) -> None:
    bad = site(2, hosts=BAD, answer=come_back_later("/page/0"))
    urls = [url for host in BAD for url in bad.page_urls(host)]
    settings = fixed(20, DOWNLOADER_MIDDLEWARES={Dawdle: 500})
    result = crawl(urls=urls, settings=settings)
    assert sorted(item["status"] for item in result.items) == [200] * 4
    assert set(bad.pages_served().values()) == {2}
    assert min(silences(bad)) > 3 - bad.jitter
    assert result.stats["politeness/handed_back"] == 2
    assert "politeness/waits" not in result.stats


def silences(server: Site) -> list[float]:
    """The longest time without a request, for each of the bad hosts."""
    return [max(server.gaps(host)) for host in BAD]


def test_while_everything_is_held_the_process_sleeps(site: Callable[..., Site]) -> None:
    def refuse(path: str, nth: int) -> Answer | None:
        return Answer(429, {"Retry-After": "6"}) if nth <= 20 else None

    hosts = [f"127.0.1.{number}" for number in range(1, 21)]

    def run(longest_wait: float) -> Crawl:
        server = site(1, hosts=hosts, answer=refuse)
        urls = [url for host in hosts for url in server.page_urls(host)]
        settings = {**NO_ROBOTS, "POLITENESS_RETRY_AFTER_MAX": longest_wait}
        return crawl(urls=urls, settings=settings)

    busy, idle = run(longest_wait=0.1), run(longest_wait=6)
    assert idle.seconds > 5.5
    # Looking again and again would take all of these seconds.
    assert idle.cpu_seconds - busy.cpu_seconds < 1


def test_a_slot_that_is_released_early_wakes_the_crawl(
    site: Callable[..., Site],
) -> None:
    """One request at a time: the next goes when the first is done, not at the
    engine's next heartbeat."""
    server = site(10, latency=0.1)
    settings = fixed(1000, CONCURRENT_REQUESTS_PER_DOMAIN=1)
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 10
    assert result.seconds < 5 + server.lost


class WalkAll(Walk):
    name = "walk_all"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.urls:
            yield Request(url, callback=self.parse, errback=self.failed)


HOSTS = [f"127.0.1.{number}" for number in range(1, 21)]
PAGES = 60


def many_pages(site: Callable[..., Site]) -> Site:
    def refuse_some_at_first(path: str, nth: int) -> Answer | None:
        # The count is over all hosts: some see a refusal, some do not.
        refused = path.endswith("7") and nth <= 5
        return Answer(429, {"Retry-After": "1"}) if refused else None

    return site(PAGES, hosts=HOSTS, answer=refuse_some_at_first)


def job(server: Site, folder: Path) -> dict[str, Any]:
    return {
        "spider": WalkAll,
        "urls": [server.page_urls(host)[0] for host in HOSTS],
        "settings": {
            **fixed(20),
            "JOBDIR": str(folder / "job"),
            "POLITENESS_MIN_RATE": 5,
            "POLITENESS_BACKOFF_MAX": 5,
            "LOG_LEVEL": "INFO",
        },
    }


def served(server: Site) -> Counter[tuple[str, str]]:
    return Counter((a.host, a.path) for a in server.arrivals if a.status == 200)


EVERYTHING = {(host, f"/page/{number}") for host in HOSTS for number in range(PAGES)}


def stop_ten_times(server: Site, folder: Path, *, kill: bool) -> None:
    chance = random.Random()
    for _ in range(10):
        arrived = len(server.arrivals)
        with start_crawl(**job(server, folder)) as running:
            running.wait_for_log("Polite crawl")
            # Where none come any more, it is stopped during a pause.
            with suppress(TimeoutError):
                server.wait_for_arrivals(arrived + chance.randrange(1, 90), timeout=2)
            if kill:
                running.kill()
            else:
                running.interrupt()
            running.wait(timeout=20)


def test_a_crawl_that_is_interrupted_ten_times_fetches_each_page_once(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = many_pages(site)
    stop_ten_times(server, tmp_path, kill=False)
    last = crawl(**job(server, tmp_path))
    assert last.stats["finish_reason"] == "finished"
    assert set(served(server)) == EVERYTHING
    assert set(served(server).values()) == {1}


def test_a_crawl_that_is_killed_ten_times_misses_nothing(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = many_pages(site)
    stop_ten_times(server, tmp_path, kill=True)
    last = crawl(**job(server, tmp_path))
    assert last.stats["finish_reason"] == "finished"
    assert set(served(server)) == EVERYTHING
    again = served(server).total() - len(EVERYTHING)
    print(f"{again} of {len(EVERYTHING)} pages were fetched twice")
    # At each kill, up to about 40 are in flight or being parsed, and on a busy machine
    # as many more as arrive, at 20/s from each host, before the spider has its turn.
    assert again <= 10 * (60 + 20 * len(HOSTS) * server.jitter)
