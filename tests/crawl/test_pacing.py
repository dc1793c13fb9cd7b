"""Spacing, concurrency and off switches, judged by the server's log."""

from __future__ import annotations

import re
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import REACTORS, Reactor, crawl
from tests.support.settings import NO_ROBOTS, fixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

FAST = fixed(1e6)

WAIT = re.compile(r" waits \d+\.\d+ s")


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_requests_to_a_slot_are_spaced_by_its_rate(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(16)
    result = crawl(urls=server.page_urls(), settings=fixed(10), reactor=reactor)
    assert len(result.items) == 16
    gaps = server.gaps()[1:]
    # A busy machine may write down some late, and what comes after them seems early.
    first_quarter, middle, _ = quantiles(gaps)
    assert first_quarter > 0.1 - server.jitter
    assert middle < 0.1 + 0.02 + server.jitter
    assert sum(gaps) > len(gaps) * 0.1 - server.jitter


@pytest.mark.everywhere
def test_the_first_request_goes_at_once_and_slots_run_in_parallel(
    site: Callable[..., Site],
) -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    server = site(4, hosts=hosts)
    urls = [url for host in hosts for url in server.page_urls(host)]
    result = crawl(urls=urls, settings=fixed(2))
    assert len(result.items) == 12
    first = [min(a.at for a in server.arrivals if a.host == host) for host in hosts]
    assert max(first) - min(first) < 0.3 + server.lost
    for host in hosts:
        assert min(server.gaps(host)[1:]) > 0.5 - server.jitter
    assert result.seconds < 2.5 + server.lost


def test_a_high_rate_is_reached_in_spite_of_timers_that_fire_late(
    site: Callable[..., Site],
) -> None:
    server = site(300)
    crawl(urls=server.page_urls(), settings=fixed(100, LOG_LEVEL="INFO"))
    times = [arrival.at for arrival in server.arrivals]
    assert 2.99 * 0.97 - server.jitter < times[-1] - times[0]
    assert times[-1] - times[0] < 2.99 * 1.1 + server.lost


@pytest.mark.parametrize(
    "concurrency", [1, pytest.param(3, marks=pytest.mark.everywhere)]
)
def test_concurrency_per_domain_is_kept_for_real(
    site: Callable[..., Site], concurrency: int
) -> None:
    server = site(24, latency=0.05)
    settings = {**FAST, "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 24
    assert server.max_in_flight == concurrency


def test_download_delay_is_a_minimum_spacing_and_is_not_applied_twice(
    site: Callable[..., Site],
) -> None:
    server = site(10)
    settings = {**FAST, "DOWNLOAD_DELAY": 0.2}
    crawl(urls=server.page_urls(), settings=settings)
    gaps = server.gaps()
    assert min(gaps) > 0.2 - server.jitter
    # Scrapy's own delay is random between 0.1 and 0.3.
    assert sum(gaps) < 9 * 0.2 + 0.2 + server.lost


def test_the_rate_rises_only_while_the_pace_is_what_limits(
    site: Callable[..., Site],
) -> None:
    server = site(40, latency=0.1)
    settings = {
        "POLITENESS_START_RATE": 50,
        "POLITENESS_MAX_RATE": 1000,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        **NO_ROBOTS,
    }
    limited_by_latency = crawl(urls=server.page_urls(), settings=settings)
    assert "politeness/speedups" not in limited_by_latency.stats
    settings["CONCURRENT_REQUESTS_PER_DOMAIN"] = 16
    limited_by_pace = crawl(urls=server.page_urls(), settings=settings)
    assert limited_by_pace.stats["politeness/speedups"] >= 1


@pytest.mark.parametrize(
    "off",
    [
        {"POLITENESS_ENABLED": False},
        {"POLITENESS_EXEMPT": ["127.0.0.1"]},
        {"POLITENESS_LIMITS": {"127.0.0.1": {"start_rate": 0}}},
        {"DOWNLOAD_SLOTS": {"127.0.0.1": {"delay": 0}}},
    ],
)
def test_off_switches(site: Callable[..., Site], off: dict[str, Any]) -> None:
    server = site(20)
    result = crawl(urls=server.page_urls(), settings=off)
    assert len(result.items) == 20
    assert result.seconds < 10 + server.lost  # at 1/s, it would be 19
    assert {arrival.path for arrival in server.arrivals}.isdisjoint({"/robots.txt"})
    is_exempt = "POLITENESS_EXEMPT" in off
    assert result.log.count("127.0.0.1 is in POLITENESS_EXEMPT") == is_exempt


def test_an_exempt_request_does_not_wait_for_the_others(
    site: Callable[..., Site],
) -> None:
    server = site(4)
    requests: list[dict[str, Any]] = [{"url": url} for url in server.page_urls()]
    requests[-1]["meta"] = {"politeness_exempt": True}
    crawl(requests=requests, settings=fixed(2))
    paths = [arrival.path for arrival in server.arrivals]
    assert paths.index("/page/3") <= 1


def test_what_waits_at_the_gate_goes_by_priority(site: Callable[..., Site]) -> None:
    """Scrapy's own queue hands out everything at once, the first page first."""
    server = site(6)
    requests = [
        {"url": url, "priority": number}
        for number, url in enumerate(server.page_urls())
    ]
    own = "scrapy.pqueues.ScrapyPriorityQueue"
    crawl(requests=requests, settings=fixed(4, SCHEDULER_PRIORITY_QUEUE=own))
    paths = [arrival.path for arrival in server.arrivals]
    assert paths == ["/page/0", *(f"/page/{number}" for number in (5, 4, 3, 2, 1))]


def test_only_real_waits_are_logged_and_counted(site: Callable[..., Site]) -> None:
    server = site(10)
    result = crawl(urls=server.page_urls(), settings=fixed(10))
    # What is late at the gate has waited for the machine.
    assert result.stats.get("politeness/wait_seconds", 0) < server.lost
    own = "scrapy.pqueues.ScrapyPriorityQueue"
    settings = fixed(10, SCHEDULER_PRIORITY_QUEUE=own)
    result = crawl(urls=server.page_urls(), settings=settings)
    waits = result.stats["politeness/waits"]
    # A busy machine may bring some to the gate just in time, and hold others there.
    assert 3 <= len(WAIT.findall(result.log)) <= waits <= 9
    waited = result.stats["politeness/wait_seconds"]
    assert 0.1 * waits < waited < 5 + server.lost


def test_urls_without_a_host_are_limited_under_one_slot(
    site: Callable[..., Site],
) -> None:
    server = site(1)
    urls = ["http:///a", "http://:80/b", "https:///c", server.url + "/page/0"]
    result = crawl(urls=urls, settings=fixed(2, RETRY_ENABLED=False))
    failed = sorted(item["time"] for item in result.items if "error" in item)
    assert len(failed) == 3
    assert failed[2] - failed[0] > 1.0 - server.jitter
    assert [item["status"] for item in result.items if "status" in item] == [200]


def test_local_urls_bother_nobody_and_are_not_delayed() -> None:
    urls = [f"data:,{number}" for number in range(20)]
    result = crawl(urls=urls)
    assert len(result.items) == 20
    assert result.seconds < 19  # what they would take at 1/s
