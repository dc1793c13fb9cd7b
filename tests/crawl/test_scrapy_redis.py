"""Several processes crawl with one queue in Redis."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import DEFAULT_REACTOR, WARNINGS, start_crawl
from tests.support.settings import NO_ROBOTS
from tests.support.site import Answer
from tests.support.spiders import Pages, ShortLived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.crawl import RunningCrawl
    from tests.support.redis_server import RedisServer
    from tests.support.site import Site


AT_ONCE = 4

# scrapy-redis counts its stats in a way that Scrapy deprecates.
ENV = {"PYTHONWARNINGS": f"{WARNINGS},ignore:::scrapy_redis.scheduler"}

HELD = "127.0.0.2"

FREE = [f"127.0.0.{n}" for n in range(3, 7)]


def shared(redis: RedisServer, **more: Any) -> dict[str, Any]:
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_QUEUE_CLASS": "scrapy_politeness.scrapy_redis.PoliteQueue",
        "SCHEDULER_PERSIST": True,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "REDIS_URL": redis.url,
        "POLITENESS_REDIS_URL": redis.url,
        "POLITENESS_START_RATE": 50,
        "POLITENESS_MAX_RATE": 50,
        "POLITENESS_LIMITS": {HELD: {"limit": "8/s", "adaptive": False}},
        "CONCURRENT_REQUESTS": AT_ONCE,
        **NO_ROBOTS,
        **more,
    }


@pytest.fixture
def crawls(redis_server: RedisServer) -> Iterator[Callable[..., list[RunningCrawl]]]:
    """Starts several crawls that all want the same pages."""
    with ExitStack() as stack:

        def start(server: Site, hosts: list[str], processes: int) -> list[RunningCrawl]:
            pages = [url for host in hosts for url in server.page_urls(host)]
            return [
                stack.enter_context(
                    start_crawl(
                        Pages, urls=pages, settings=shared(redis_server), env=ENV
                    )
                )
                for _ in range(processes)
            ]

        yield start


def fetched(server: Site) -> Counter[tuple[str, str]]:
    return Counter((arrival.host, arrival.path) for arrival in server.arrivals)


def test_a_held_host_does_not_hold_up_the_others(
    site: Callable[..., Site],
    crawls: Callable[..., list[RunningCrawl]],
    redis_server: RedisServer,
) -> None:
    server = site(40, hosts=[HELD, *FREE])
    results = [running.wait() for running in crawls(server, [HELD, *FREE], 3)]
    assert len(fetched(server)) == 200
    assert set(fetched(server).values()) == {1}
    assert sum(len(result.items) for result in results) == 200
    assert all(result.items for result in results)
    held = [a.at for a in server.arrivals if a.host == HELD]
    free = [a.at for a in server.arrivals if a.host != HELD]
    # Each process has fewer places than there are pages of the held host.
    assert sum(at < free[-1] for at in held) < 30 + 8 * server.lost
    # In sum, or it would be 24 in a second.
    second = 1 - server.jitter
    assert max(sum(0 <= b - a < second for b in held) for a in held) <= 8 + 2
    # Nobody has given up while there was something left to do.
    assert held[-1] - held[0] > 39 / 8 - server.jitter
    assert held[-1] - held[0] < 2 * 39 / 8 + server.lost
    assert not redis_server.client().keys("*requests*")
    for result in results:
        assert "CONCURRENT_REQUESTS and hold up other hosts" not in result.log
        assert "Traceback" not in result.log


@pytest.mark.everywhere
@pytest.mark.skipif(DEFAULT_REACTOR == "select", reason="Redis needs asyncio")
def test_processes_wait_for_what_the_others_find(
    site: Callable[..., Site], redis_server: RedisServer, tmp_path: Path
) -> None:
    # One page leads to all others, and it takes its time: longer than a process lives
    # that is not heard of. Nothing else can be popped meanwhile.
    def slowly(path: str, nth: int) -> Answer | None:
        return Answer(body=b"".join(links), delay=4.0) if path == "/page/0" else None

    links = [b'<a href="/page/%d">.</a>' % n for n in range(1, 24)]
    server = site(24, hosts=[HELD], answer=slowly)
    done = [tmp_path / name for name in "ab"]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                start_crawl(
                    ShortLived,
                    urls=server.page_urls(),
                    settings=shared(redis_server, CONCURRENT_REQUESTS=1),
                    env=ENV,
                    done=str(file),
                )
            )
            for file in done
        ]
        for crawl in running:
            crawl.wait()
    assert len(fetched(server)) == 24
    assert set(fetched(server).values()) == {1}
    assert all(file.exists() for file in done)


def test_a_broken_page_is_given_up_by_one_of_them(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    broken = "/page/20"
    server = site(
        60,
        hosts=[HELD],
        answer=lambda path, nth: Answer(503) if path == broken else None,
    )
    settings = shared(redis_server, POLITENESS_BACKOFF_BASE=0.3, RETRY_ENABLED=False)
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                start_crawl(
                    Pages, urls=server.page_urls(HELD), settings=settings, env=ENV
                )
            )
            for _ in range(2)
        ]
        results = [crawl.wait() for crawl in running]
    assert server.pages_served().total() == len(server.pages_served()) == 59
    failed = [item for result in results for item in result.items if "error" in item]
    assert [item["status"] for item in failed] == [503]
    tries = [a.at for a in server.arrivals if a.path == broken]
    _, *growing = [later - earlier for earlier, later in pairwise(tries)]
    assert len(growing) >= 3
    # A refusal while the host is silent is not the page's, and has no gap of its own.
    for gap, least in zip(sorted(growing)[-3:], (0.3, 0.6, 1.2), strict=True):
        assert gap > least - server.jitter
    assert not redis_server.client().keys("*requests*")
    assert not any("Traceback" in result.log for result in results)


def test_a_process_that_is_closed_takes_nothing_with_it(
    site: Callable[..., Site], crawls: Callable[..., list[RunningCrawl]]
) -> None:
    server = site(24, hosts=[HELD])
    first, other = crawls(server, [HELD], 2)
    # Scrapy does not close what is interrupted before it has begun: it just ends.
    first.wait_for_log("Crawled (200)")
    first.interrupt()
    items = sum(len(running.wait().items) for running in (first, other))
    assert items == 24
    assert len(fetched(server)) == 24
    assert set(fetched(server).values()) == {1}


def test_the_others_go_on_with_what_a_killed_process_had(
    site: Callable[..., Site], redis_server: RedisServer, tmp_path: Path
) -> None:
    server = site(24, hosts=[HELD], latency=0.2)
    with ExitStack() as stack:
        first, other = (
            stack.enter_context(
                start_crawl(
                    ShortLived,
                    urls=server.page_urls(),
                    settings=shared(redis_server),
                    env=ENV,
                    done=str(tmp_path / name),
                )
            )
            for name in "ab"
        )
        first.wait_for_log("Crawled (200)")
        first.kill()
        result = other.wait()
    assert result.stats["finish_reason"] == "finished"
    done = [path.read_text("utf-8") for path in tmp_path.iterdir()]
    # Each is parsed by somebody; what was in flight is fetched twice.
    assert len({line.split()[0] for line in "".join(done).splitlines()}) == 24
    assert fetched(server).total() <= 24 + 2 * AT_ONCE
