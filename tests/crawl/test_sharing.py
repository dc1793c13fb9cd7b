"""Several processes, one budget: real crawls that share a real Redis."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness import PolitenessExtension
from tests.support.crawl import crawl, start_crawl
from tests.support.redis_server import RedisServer, redis_cluster
from tests.support.settings import NO_ROBOTS, SEARCHING, fixed
from tests.support.site import Answer
from tests.support.spiders import Pages, Watchful
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy import Spider

    from tests.support.crawl import Crawl, RunningCrawl
    from tests.support.site import Site

PROCESSES = 4

# Seconds that send times are reserved ahead, and requests in them at 20/s.
LEASE = 0.2
IN_A_LEASE = 4

TWENTY = {
    "POLITENESS_LIMITS": {"127.0.0.1": {"limit": "20/s", "adaptive": False}},
    "LOG_LEVEL": "INFO",
    **NO_ROBOTS,
}


class Crawls:
    """Several crawls at the same time, of different pages of one site."""

    def __init__(
        self,
        stack: ExitStack,
        server: Site,
        redis: RedisServer,
        settings: dict[str, Any],
        spider: type[Spider] = Pages,
        processes: int = PROCESSES,
    ) -> None:
        urls = server.page_urls()
        settings = {"POLITENESS_REDIS_URL": redis.url, **settings}
        self.running: list[RunningCrawl] = [
            stack.enter_context(
                start_crawl(spider, urls=urls[n::processes], settings=settings)
            )
            for n in range(processes)
        ]

    def wait(self, timeout: float = 120.0) -> list[Crawl]:
        return [running.wait(timeout) for running in self.running]


@pytest.fixture
def crawls(redis_server: RedisServer) -> Iterator[Callable[..., Crawls]]:
    with ExitStack() as stack:

        def start(server: Site, settings: dict[str, Any], **options: Any) -> Crawls:
            return Crawls(stack, server, redis_server, settings, **options)

        yield start


def assert_all_pages_once(server: Site) -> None:
    assert len(server.pages_served()) == server.pages
    assert set(server.pages_served().values()) == {1}


def most_in_a_second(server: Site) -> int:
    """As the site saw it: on a busy machine, some arrive a little late."""
    times = [arrival.at for arrival in server.arrivals]
    second = 1 - server.jitter
    return max(
        sum(at <= other < at + second for other in times[n : n + 100])
        for n, at in enumerate(times)
    )


def wait_for_members(redis: RedisServer) -> None:
    """Until all processes know of each other."""
    client = redis.client()
    deadline = time.monotonic() + 60
    while client.zcard("politeness:1:{slot:127.0.0.1}:members") < PROCESSES:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)


def test_four_processes_find_one_limit_together(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    server = site(200, limit="20/second")
    results = crawls(server, SEARCHING).wait()
    assert_all_pages_once(server)
    assert [len(result.items) for result in results] == [50] * PROCESSES
    assert server.refusals() <= 40
    # Each refusal has cut the rate once, whichever process has seen it.
    cuts = sum(result.stats.get("politeness/slowdowns", 0) for result in results)
    assert cuts <= server.refusals()


def test_a_limit_holds_for_the_sum(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    server = site(100)
    crawls(server, TWENTY).wait()
    assert_all_pages_once(server)
    assert most_in_a_second(server) <= 20
    times = [arrival.at for arrival in server.arrivals]
    assert times[-1] - times[0] < 3 * 100 / 20 + server.lost


def test_several_limits_hold_for_the_sum(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    server = site(30)
    limits = {"127.0.0.1": {"limit": ["5/s", "12/4s"], "adaptive": False}}
    crawls(server, {**TWENTY, "POLITENESS_LIMITS": limits}, processes=3).wait()
    assert_all_pages_once(server)
    times = [arrival.at for arrival in server.arrivals]
    for most, window in ((5, 1), (12, 4)):
        length = window - server.jitter
        assert max(sum(at <= b < at + length for b in times) for at in times) <= most
    assert times[-1] - times[0] < 2 * 30 / 3 + server.lost


def test_concurrency_holds_for_the_sum_while_a_process_is_killed(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    server = site(120, latency=0.25)
    limits = {"127.0.0.1": {"limit": "100/s", "concurrency": 5, "adaptive": False}}
    together = crawls(server, {**TWENTY, "POLITENESS_LIMITS": limits}, processes=3)
    server.wait_for_arrivals(30)
    together.running[0].kill()
    killed_at = time.monotonic()
    for running in together.running[1:]:
        assert len(running.wait(120).items) == 40
    # A connection that was cut is in flight until the server has noticed.
    others = [a for a in server.arrivals if not -0.1 < a.at - killed_at < 1]
    assert 3 <= max(a.in_flight for a in others) <= 5


def test_a_global_limit_holds_for_the_sum(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    hosts = [f"127.0.0.{n}" for n in range(2, 6)]
    server = site(20, hosts=hosts)
    settings = {**fixed(20), "POLITENESS_GLOBAL_LIMIT": "20/s"}
    urls = [url for host in hosts for url in server.page_urls(host)]
    server.page_urls = lambda host=None: urls  # type: ignore[method-assign]
    crawls(server, settings).wait()
    assert len(server.arrivals) == 80
    assert most_in_a_second(server) <= 20
    times = [arrival.at for arrival in server.arrivals]
    assert times[-1] - times[0] < 4 * 80 / 20 + server.lost


@pytest.mark.parametrize("shared", ["address", "proxy"])
def test_what_many_slots_share_holds_for_the_sum(
    shared: str, site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(40)

    def a_request(number: int) -> dict[str, Any]:
        if shared == "proxy":
            url = f"http://host{number % 4}.example/page/{number}"
            return {"url": url, "meta": {"proxy": server.url}}
        slot = {"download_slot": f"slot {number % 4}"}
        return {"url": server.page_urls()[number], "meta": slot}

    limit = "POLITENESS_IP_LIMIT" if shared == "address" else "POLITENESS_PROXY_LIMIT"
    settings = {**fixed(50), limit: "10/s", "POLITENESS_REDIS_URL": redis_server.url}
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                start_crawl(
                    requests=[a_request(n) for n in range(40) if n % 2 == half],
                    settings=settings,
                )
            )
            for half in range(2)
        ]
        results = [one.wait() for one in running]
    assert_all_pages_once(server)
    assert all(len(result.items) == 20 for result in results)
    # The first requests of a host are sent before its address is known.
    assert most_in_a_second(server) <= 10


def test_a_refusal_of_one_silences_all(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    refused_at: list[float] = []

    def refuse_once(path: str, nth: int) -> Answer | None:
        if refused_at or len(server.arrivals) < 60:
            return None
        refused_at.append(time.monotonic())
        return Answer(429, {"Retry-After": "3"})

    server = site(100, answer=refuse_once)
    crawls(server, fixed(20)).wait()
    assert_all_pages_once(server)
    [at] = refused_at
    late = [a.at - at for a in server.arrivals if a.at > at]
    silence, index = max((b - a, n) for n, (a, b) in enumerate(pairwise([0.0, *late])))
    assert silence > 3 - LEASE - server.jitter
    # No process sent anything after its leases were over.
    latest = LEASE + 0.1 + server.jitter
    assert all(wait < latest for wait in late[:index])


@pytest.mark.parametrize("how", ["at once", "a while later"])
def test_a_new_process_starts_with_what_the_others_know(
    how: str, site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(100, limit="20/second")
    settings = {**SEARCHING, "POLITENESS_REDIS_URL": redis_server.url}
    crawl(urls=server.page_urls(), settings=settings)
    refusals, before = server.refusals(), len(server.arrivals)
    assert refusals
    if how == "a while later":
        redis_server.client().delete("politeness:1:{slot:127.0.0.1}:record")
    urls = [f"{url}?again" for url in server.page_urls()[:60]]
    assert len(crawl(urls=urls, settings=settings).items) == 60
    assert server.refusals() <= refusals + 12
    # At 5/s, most of the first gaps would be longer, however busy the machine is. What
    # comes later may be refused.
    assert median(server.gaps()[before : before + 10]) < 1 / 6


def test_a_process_that_was_killed_is_soon_forgotten(
    site: Callable[..., Site], crawls: Callable[..., Crawls]
) -> None:
    server = site(160)
    together = crawls(server, TWENTY)
    server.wait_for_arrivals(40, timeout=60)
    together.running[0].kill()
    killed_at = time.monotonic()
    for running in together.running[1:]:
        running.wait()
    after = [a.at for a in server.arrivals if a.at > killed_at]
    # The gap that it left, and the whole rate for the processes that are still there.
    assert max(b - a for a, b in pairwise(after)) < 2.0 + server.lost
    assert after[-1] - after[0] < len(after) / 12 + server.lost


@pytest.mark.parametrize("how", ["killed", "stalled"])
def test_the_crawl_goes_on_without_redis(
    how: str,
    site: Callable[..., Site],
    crawls: Callable[..., Crawls],
    redis_server: RedisServer,
) -> None:
    server = site(260)
    together = crawls(server, TWENTY, spider=Watchful)
    wait_for_members(redis_server)
    if how == "killed":
        redis_server.kill()
    else:
        redis_server.stop_for_now()
    away_at = time.monotonic()
    time.sleep(5)
    if how == "killed":
        redis_server.start()
    else:
        redis_server.go_on()
    back_at = time.monotonic()
    results = together.wait()
    assert_all_pages_once(server)
    assert most_in_a_second(server) <= 20 + IN_A_LEASE
    assert any(away_at + 2 < a.at < back_at for a in server.arrivals)
    for result in results:
        assert result.log.count("is unavailable") == 1
        assert result.log.count("is back") == 1
        assert result.stats["politeness/redis/outages"] == 1
        assert "Traceback" not in result.log
        assert "just under what the host allows" not in result.log
    # A process that waited for Redis would be held up for half a second at least.
    assert (
        max(result.stats["longest_stall"] for result in results) < 0.4 + server.jitter
    )


def test_without_redis_from_the_start_no_process_goes_faster_than_the_start_rate(
    site: Callable[..., Site],
) -> None:
    server = site(16)
    nowhere = RedisServer()
    settings = {
        **SEARCHING,
        "POLITENESS_REDIS_URL": f"redis://:s3cret@127.0.0.1:{nowhere.port}",
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert_all_pages_once(server)
    assert result.log.count("is unavailable") == 1
    assert "s3cret" not in result.log
    times = [arrival.at for arrival in server.arrivals]
    assert times[-1] - times[0] > 15 / 5 - server.jitter


def test_a_cluster_that_is_not_there(site: Callable[..., Site]) -> None:
    server = site(5)
    url = RedisServer().url.replace("redis", "redis+cluster")
    settings = {**fixed(20), "POLITENESS_REDIS_URL": url}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert_all_pages_once(server)
    assert result.log.count("is unavailable") == 1
    assert "Traceback" not in result.log


def test_redis_that_comes_later_is_joined(site: Callable[..., Site]) -> None:
    server = site(60)
    redis = RedisServer()
    settings = {**SEARCHING, "POLITENESS_REDIS_URL": redis.url}
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        running.wait_for_log("continues alone, no faster than the start rate")
        with redis:
            result = running.wait()
    assert_all_pages_once(server)
    assert "is back" in result.log
    # Free to climb, from the start rate on.
    assert result.stats["politeness/speedups"] > 0


def test_short_crawls_have_true_accounts(
    site: Callable[..., Site], redis_server: RedisServer, tmp_path: Path
) -> None:
    server = site(6)
    settings = {
        **fixed(50),
        "POLITENESS_REDIS_URL": redis_server.url,
        "POLITENESS_STATE": str(tmp_path / "state.sqlite"),
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert result.stats["politeness/slots/127.0.0.1/served"] == 6
    assert "Not saved" not in result.log


class Resetter(Pages):
    """Forgets the host after the last page."""

    name = "resetter"

    def parse(self, response: Any) -> Iterator[Any]:
        yield from super().parse(response)
        if response.url == self.urls[-1]:
            politeness = self.crawler.get_extension(PolitenessExtension)
            assert politeness is not None
            politeness.reset("127.0.0.1")


def test_a_reset_holds_for_all(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(100, limit="20/second")
    settings = {**SEARCHING, "POLITENESS_REDIS_URL": redis_server.url}
    crawl(urls=server.page_urls(), settings=settings)
    client = redis_server.client()
    assert client.exists("politeness:1:{slot:127.0.0.1}:summary")
    crawl(Resetter, urls=[server.page_urls()[0]], settings=settings)
    assert not client.exists("politeness:1:{slot:127.0.0.1}:summary")
    saved = client.hget("politeness:1:{slot:127.0.0.1}:record", "s")
    assert isinstance(saved, bytes)
    assert json.loads(saved)["governor"]["rate"] == SEARCHING["POLITENESS_START_RATE"]


def test_a_server_that_lost_its_memory_is_told_again(
    site: Callable[..., Site],
    crawls: Callable[..., Crawls],
    redis_server: RedisServer,
) -> None:
    server = site(120, limit="20/second")
    together = crawls(server, SEARCHING, processes=2)
    server.wait_for_arrivals(80, timeout=60)
    client = redis_server.client()
    client.flushall()
    client.script_flush()
    together.wait()
    assert_all_pages_once(server)
    assert client.exists("politeness:1:{slot:127.0.0.1}:record")


def test_damaged_values_are_dropped_with_a_warning(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    client = redis_server.client()
    key = "politeness:1:{slot:127.0.0.1}:record"
    damaged: dict[Any, Any] = {
        "v": 7,
        "g": 0,
        "i": 50_000,
        "s": '{"governor": {"rate": ',
    }
    client.hset(key, mapping=damaged)
    server = site(10)
    settings = {**fixed(20), "POLITENESS_REDIS_URL": redis_server.url}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert_all_pages_once(server)
    assert result.log.count("cannot be read") == 1
    saved = client.hget(key, "s")
    assert isinstance(saved, bytes)
    assert json.loads(saved)["governor"]["rate"] == 20


def test_all_keys_expire(site: Callable[..., Site], redis_server: RedisServer) -> None:
    server = site(100)
    settings = {**fixed(20), "POLITENESS_REDIS_URL": redis_server.url}
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        server.wait_for_arrivals(10, timeout=60)
        running.kill()
    client = redis_server.client()
    keys = list(client.scan_iter())
    assert len(keys) == 2
    assert all(key.startswith(b"politeness:1:{slot:127.0.0.1}:") for key in keys)
    assert all(0 < client.ttl(key) <= 7 * 86400 for key in keys)


def test_a_process_that_ends_leaves_its_seat(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(5)
    settings = {**fixed(20), "POLITENESS_REDIS_URL": redis_server.url}
    crawl(urls=server.page_urls(), settings=settings)
    assert not redis_server.client().exists("politeness:1:{slot:127.0.0.1}:members")


@pytest.mark.parametrize(
    ("account", "path", "reason"),
    [
        ("", "/0", "Authentication required"),
        (":wrong@", "/0", "invalid username-password pair"),
        (":right@", "/99", "DB index is out of range"),
    ],
)
def test_a_mistake_in_the_url_stops_the_crawl(
    account: str, path: str, reason: str, site: Callable[..., Site]
) -> None:
    server = site(3)
    with RedisServer("--requirepass", "right") as redis:
        url = f"redis://{account}127.0.0.1:{redis.port}{path}"
        settings = {**fixed(20), "POLITENESS_REDIS_URL": url}
        result = crawl(urls=server.page_urls(), settings=settings)
    assert result.returncode
    assert "Cannot start the crawl: POLITENESS_REDIS_URL=" in result.log
    assert reason in result.log
    assert "wrong" not in result.log
    assert not server.arrivals


def test_sentinel_is_not_supported() -> None:
    settings = {"POLITENESS_REDIS_URL": "redis+sentinel://127.0.0.1:26379/mymaster"}
    result = crawl(urls=[], settings=settings)
    assert result.returncode
    assert "Sentinel is not supported" in result.log


def test_a_failover_that_closes_no_connection_is_survived(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(60)
    settings = {**TWENTY, "POLITENESS_LIMITS": {"127.0.0.1": {"limit": "5/s"}}}
    with RedisServer() as other, TcpProxy(redis_server.port) as proxy:
        settings["POLITENESS_REDIS_URL"] = proxy.url
        with start_crawl(urls=server.page_urls(), settings=settings) as running:
            server.wait_for_arrivals(5, timeout=60)
            proxy.lead_to(other.port)
            redis_server.say("REPLICAOF", "127.0.0.1", other.port)
            running.wait_for_log("is back")
            result = running.wait()
        assert other.client().dbsize()
    assert_all_pages_once(server)
    assert "read only replica" in result.log
    assert result.log.count("is unavailable") == 1


@pytest.mark.parametrize("limit", ["20/s", "2/s"])
def test_a_server_far_away_slows_nobody_down(
    limit: str, site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(20 if limit == "20/s" else 8)
    own = {"limit": limit, "adaptive": False}
    settings = {**TWENTY, "POLITENESS_LIMITS": {"127.0.0.1": own}}
    settings |= {"POLITENESS_START_RATE": 20}
    with TcpProxy(redis_server.port, round_trip=0.2) as proxy:
        settings["POLITENESS_REDIS_URL"] = proxy.url
        result = crawl(urls=server.page_urls(), settings=settings)
    assert_all_pages_once(server)
    assert "is unavailable" not in result.log
    times = [arrival.at for arrival in server.arrivals]
    allowed = (len(times) - 1) / float(limit.partition("/")[0])
    assert times[-1] - times[0] < 3 * allowed + server.lost


def test_a_delay_is_kept_while_redis_goes_and_comes(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(12)
    settings = {**TWENTY, "POLITENESS_LIMITS": {}, "DOWNLOAD_DELAY": 1}
    with TcpProxy(redis_server.port) as proxy, ExitStack() as stack:
        settings["POLITENESS_REDIS_URL"] = proxy.url
        running = [
            stack.enter_context(
                start_crawl(urls=server.page_urls()[half::2], settings=settings)
            )
            for half in range(2)
        ]
        server.wait_for_arrivals(3, timeout=60)
        proxy.cut()
        time.sleep(4)
        redis_server.client().flushall()
        proxy.mend()
        for one in running:
            one.wait()
    assert_all_pages_once(server)
    assert min(server.gaps()) > 1 - server.jitter


@pytest.mark.everywhere
def test_redis_needs_asyncio(redis_server: RedisServer) -> None:
    settings = {"POLITENESS_REDIS_URL": "redis://:s3cret@127.0.0.1:1/0"}
    result = crawl(urls=[], settings=settings, reactor="select")
    assert result.returncode
    assert (
        "POLITENESS_REDIS_URL='redis://***@127.0.0.1:1/0': needs asyncio" in result.log
    )
    assert "s3cret" not in result.log


def test_a_crawl_without_a_reactor_shares_too(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(10)
    settings = {**fixed(20), "POLITENESS_REDIS_URL": redis_server.url}
    result = crawl(urls=server.page_urls(), settings=settings, reactor="none")
    assert_all_pages_once(server)
    assert result.stats["politeness/redis/permits"] >= 10


@pytest.mark.parametrize("limit", [None, "25/s"])
def test_a_cluster_of_servers(
    limit: str | None, site: Callable[..., Site], tmp_path: Path
) -> None:
    hosts = [f"127.0.0.{n}" for n in range(2, 6)]
    server = site(5, hosts=hosts)
    settings = {**fixed(20), "POLITENESS_GLOBAL_LIMIT": limit}
    with redis_cluster(tmp_path) as nodes:
        url = nodes[0].url.replace("redis", "redis+cluster")
        settings["POLITENESS_REDIS_URL"] = url
        urls = [url for host in hosts for url in server.page_urls(host)]
        result = crawl(urls=urls, settings=settings)
        used = [bool(node.client().dbsize()) for node in nodes]
    assert len(result.items) == 20
    assert result.stats["politeness/redis/permits"] >= 20
    assert "is unavailable" not in result.log
    # What one script has to see at once is on one node, all else on both.
    assert used.count(True) == (1 if limit else 2)


@pytest.mark.parametrize("how", ["killed", "relieved"])
def test_the_failover_of_a_cluster_node_is_survived(
    how: str, site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(24)
    settings = {**TWENTY, "POLITENESS_LIMITS": {"127.0.0.1": {"limit": "1/0.5s"}}}
    with redis_cluster(tmp_path, 3, replicas=3) as nodes, ExitStack() as stack:
        slot = int(nodes[0].say("CLUSTER", "KEYSLOT", "{slot:127.0.0.1}"))
        number = min(2, slot // (16_384 // 3))
        url = nodes[number].url.replace("redis", "redis+cluster")
        settings["POLITENESS_REDIS_URL"] = url
        running = [
            stack.enter_context(
                start_crawl(urls=server.page_urls()[half::2], settings=settings)
            )
            for half in range(2)
        ]
        server.wait_for_arrivals(5, timeout=60)
        replica = nodes[3 + number]
        if how == "killed":
            nodes[number].kill()
        else:
            replica.say("CLUSTER", "FAILOVER")
        results = [one.wait() for one in running]
        assert replica.client().role()[0] == b"master"
        # The new master has granted leases.
        assert replica.client().info("commandstats")["cmdstat_evalsha"]["calls"] > 0
    assert_all_pages_once(server)
    assert min(server.gaps()) > 0.5 - server.jitter
    for result in results:
        assert result.log.count("Redis at") <= 10
