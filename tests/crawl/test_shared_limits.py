"""Limits of all shapes, and budgets that many slots share, judged by the site's log."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest

from scrapy_politeness import PolitenessExtension, signals
from tests.support.crawl import REACTORS, Crawl, Reactor, crawl
from tests.support.settings import NO_ROBOTS, fixed
from tests.support.site import Answer
from tests.support.spiders import AT_ONCE, Broad, Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from tests.support.site import Arrival, Site

REFUSAL = Answer(429, {"Retry-After": "1"})


def limited(**own: Any) -> dict[str, Any]:
    return {**NO_ROBOTS, "POLITENESS_LIMITS": {"127.0.0.1": {"adaptive": False, **own}}}


def most_in_any(window: float, arrivals: list[Arrival]) -> int:
    times = [arrival.at for arrival in arrivals]
    return max(sum(start <= at < start + window for at in times) for start in times)


def test_no_window_holds_more_than_the_limit(site: Callable[..., Site]) -> None:
    server = site(16)
    crawl(urls=server.page_urls(), settings=limited(limit="5/2s"))
    assert len(server.pages_served()) == 16
    assert most_in_any(2 - server.jitter, server.arrivals) <= 5
    assert min(server.gaps()) > 0.4 - server.jitter


def test_several_limits_hold_at_once(site: Callable[..., Site]) -> None:
    server = site(10)
    settings = limited(limit=["3/2s", "2/200ms"])
    settings["POLITENESS_GLOBAL_LIMIT"] = ["10/s", "5/4s"]
    crawl(urls=server.page_urls(), settings=settings)
    arrivals = server.arrivals
    assert len(arrivals) == 10
    for count, window in ((2, 0.2), (3, 2), (5, 4)):
        assert most_in_any(window - server.jitter, arrivals) <= count
    # The first three at once, two more after 2 s, and the same again 4 s later.
    assert arrivals[2].at - arrivals[0].at < 1 + server.lost
    assert arrivals[-1].at - arrivals[0].at < 4 + 2 + 1 + server.lost


def test_a_burst_goes_at_once_and_the_rest_evenly(site: Callable[..., Site]) -> None:
    server = site(12)
    settings = limited(limit="5/s", burst=5)
    crawl(urls=server.page_urls(), settings=settings)
    gaps = server.gaps()
    assert len(gaps) == 11
    assert sum(gaps[:4]) < 0.4 + server.lost
    assert sum(gaps) > 7 * 0.2 - server.jitter
    assert sum(gaps[5:]) < 6 * 0.2 + 0.5 + server.lost
    # A token bucket: in a second, the limit and the rest of the burst.
    assert most_in_any(1 - server.jitter, server.arrivals) <= 5 + 4


def test_a_period_of_milliseconds(site: Callable[..., Site]) -> None:
    server = site(3)
    crawl(urls=server.page_urls(), settings=limited(limit="1/1500ms"))
    assert min(server.gaps()) > 1.5 - server.jitter
    assert max(server.gaps()) < 1.5 + 0.5 + server.lost


def test_spacing_may_count_from_the_finish(site: Callable[..., Site]) -> None:
    server = site(5, latency=0.4)
    settings = limited(limit="5/s", spacing="finish")
    crawl(urls=server.page_urls(), settings=settings)
    assert server.max_in_flight == 1
    assert min(server.gaps()) > 0.6 - server.jitter
    assert max(server.gaps()) < 0.6 + 0.5 + server.lost


def test_a_global_limit_is_shared_fairly(site: Callable[..., Site]) -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    server = site(20, hosts=hosts)
    urls = [url for host in hosts for url in server.page_urls(host)]
    settings = fixed(10, POLITENESS_GLOBAL_LIMIT="12/s")
    result = crawl(urls=urls, settings=settings)
    assert len(result.items) == 60
    arrivals = server.arrivals
    assert most_in_any(1 - server.jitter, arrivals) <= 12
    took = arrivals[-1].at - arrivals[0].at
    assert took < 59 / 12 * 1.1 + server.lost
    shares = Counter(a.host for a in arrivals if a.at < arrivals[0].at + took / 2)
    assert max(shares.values()) - min(shares.values()) <= 4
    for host in hosts:
        assert min(server.gaps(host)) > 0.1 - server.jitter
    # It all waited in the scheduler.
    assert "politeness/handed_back" not in result.stats


def _at_home(look_up: Any) -> Any:
    def look_up_there(name: Any, *args: Any, **kwargs: Any) -> Any:
        text = name.decode() if isinstance(name, bytes) else name
        if isinstance(text, str) and text.endswith(".test"):
            name = "127.0.0.1"
        return look_up(name, *args, **kwargs)

    return look_up_there


class Blogs(Pages):
    """All names below .test are at 127.0.0.1."""

    name = "blogs"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        for name in ("gethostbyname", "getaddrinfo"):
            setattr(socket, name, _at_home(getattr(socket, name)))
        return super().from_crawler(crawler, *args, **kwargs)


def urls_of(server: Site, hosts: list[str]) -> list[str]:
    return [
        url.replace("127.0.0.1", host) for host in hosts for url in server.page_urls()
    ]


@pytest.mark.parametrize("reactor", REACTORS)
def test_hosts_at_one_address_share_its_budget(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(2, hosts=["127.0.0.1", "127.0.0.2"])
    hosts = [f"blog{number}.test" for number in range(10)]
    settings = fixed(10, POLITENESS_IP_LIMIT="5/s", POLITENESS_MAX_SLOTS=5)
    urls = [*urls_of(server, hosts), *server.page_urls("127.0.0.2")]
    result = crawl(Blogs, urls=urls, settings=settings, reactor=reactor)
    assert len(result.items) == 22
    elsewhere = [a.at for a in server.arrivals if a.host == "127.0.0.2"]
    here = [a for a in server.arrivals if a.host != "127.0.0.2"]
    assert most_in_any(1 - server.jitter, here[1:]) <= 5
    assert here[-1].at - here[0].at < 19 / 5 + 1.5 + server.lost
    # All hosts have had a turn before any has its second one.
    assert len({a.host for a in here[:10]}) == 10
    # Another address has nothing to do with it.
    assert elsewhere[-1] < here[len(here) // 2].at


class DropHalf:
    """Keeps every second page from being sent."""

    def process_request(self, request: Request) -> None:
        if request.url[-1] in "13579":
            raise IgnoreRequest


def test_what_is_never_sent_costs_an_address_nothing(
    site: Callable[..., Site],
) -> None:
    server = site(4)
    hosts = [f"blog{number}.test" for number in range(3)]
    settings = fixed(
        100,
        POLITENESS_IP_LIMIT="2/s",
        DOWNLOADER_MIDDLEWARES={"tests.crawl.test_shared_limits.DropHalf": 10},
    )
    result = crawl(Blogs, urls=urls_of(server, hosts), settings=settings)
    assert len(server.arrivals) == 6
    assert len(result.items) == 12
    took = server.arrivals[-1].at - server.arrivals[0].at
    assert took < 5 / 2 + 0.4 + server.lost
    assert result.seconds < took + 1 + server.lost


def test_a_slot_that_is_switched_off_counts_nowhere(site: Callable[..., Site]) -> None:
    server = site(8, hosts=["127.0.0.1", "127.0.0.2"])
    urls = [*server.page_urls("127.0.0.1")[:3], *server.page_urls("127.0.0.2")]
    settings = {
        **NO_ROBOTS,
        "POLITENESS_GLOBAL_LIMIT": "1/s",
        "POLITENESS_LIMITS": {"127.0.0.2": {"max_rate": 0}},
    }
    crawl(urls=urls, settings=settings)
    # Of the limited ones, the second comes a second after the first.
    hosts = [a.host for a in server.arrivals][:9]
    assert Counter(hosts) == {"127.0.0.1": 1, "127.0.0.2": 8}


@contextmanager
def forward_proxy() -> Iterator[str]:
    """Twisted's own, in a process of its own."""
    program = (
        "from twisted.internet import reactor\n"
        "from twisted.web.proxy import Proxy\n"
        "from twisted.web.http import HTTPFactory\n"
        "factory = HTTPFactory()\n"
        "factory.protocol = Proxy\n"
        "port = reactor.listenTCP(0, factory, interface='127.0.0.1')\n"
        "print(port.getHost().port, flush=True)\n"
        "reactor.run()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"127.0.0.1:{port}"
        process.terminate()


def proxy_in(arrival: Arrival) -> str:
    """Twisted's proxy writes the names of headers in lower case."""
    return next(v for name, v in arrival.headers.items() if name.lower() == "x-proxy")


def test_each_proxy_and_the_host_behind_them_keep_to_their_limits(
    site: Callable[..., Site],
) -> None:
    server = site(24, hosts=["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    # The first host is asked through both proxies, the others through one.
    with forward_proxy() as one, forward_proxy() as two:
        both = list(zip(server.page_urls("127.0.0.1"), cycle([one, two])))
        single = [(url, one) for url in server.page_urls("127.0.0.2")[:12]]
        single += [(url, two) for url in server.page_urls("127.0.0.3")[:12]]
        requests = [
            {
                "url": url,
                "meta": {"proxy": f"http://user:secret@{proxy}"},
                "headers": {"X-Proxy": proxy},
            }
            for url, proxy in both + single
        ]
        settings = fixed(
            6, POLITENESS_PROXY_LIMIT="5/s", CONCURRENT_REQUESTS_PER_DOMAIN=32
        )
        result = crawl(requests=requests, settings=settings, urls=[])
    assert len(result.items) == 48
    assert "secret" not in result.log
    arrivals = server.arrivals
    for proxy in (one, two):
        through = [a for a in arrivals if proxy_in(a) == proxy]
        assert len(through) == 24
        assert most_in_any(1 - server.jitter, through) <= 5
        # Who waits for one proxy does not hold up the other.
        assert through[-1].at - through[0].at < 23 / 5 + 1.5 + server.lost
    here = [a for a in arrivals if a.host == "127.0.0.1"]
    assert most_in_any(1 - server.jitter, here) <= 7


def test_who_waits_for_one_proxy_does_not_hold_up_the_others(
    site: Callable[..., Site],
) -> None:
    server = site(8)
    with forward_proxy() as one, forward_proxy() as two:
        requests = [
            {"url": url, "meta": {"proxy": f"http://{proxy}"}}
            for url, proxy in zip(
                server.page_urls(), [one] * 3 + [two] * 5, strict=True
            )
        ]
        settings = fixed(10, POLITENESS_PROXY_LIMIT="1/1500ms")
        crawl(requests=requests, settings=settings)
    arrivals = server.arrivals
    assert len(arrivals) == 8
    # One through each at once, and then one through each every 1.5 s.
    assert arrivals[3].at - arrivals[0].at < 1.5 + 0.4 + server.lost


class Listener(Pages):
    """Writes down in the log what the signals tell."""

    name = "listener"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        connect = crawler.signals.connect
        connect(spider.slowed, signals.slot_slowed)
        connect(spider.paused, signals.slot_paused)
        connect(spider.resumed, signals.slot_resumed)
        connect(spider.settled, signals.slot_settled)
        connect(spider.opened, scrapy_signals.spider_opened)
        return spider

    def slowed(self, slot: str, old_rate: float, new_rate: float, reason: str) -> None:
        self.logger.info("told: slowed %s %s %s %s", slot, old_rate, new_rate, reason)

    def paused(self, slot: str, seconds: float, reason: str) -> None:
        self.logger.info("told: paused %s %s %s", slot, seconds, reason)

    def resumed(self, slot: str) -> None:
        self.logger.info("told: resumed %s", slot)

    def settled(self, slot: str, rate: float) -> None:
        self.logger.info("told: settled %s %s", slot, rate)

    def opened(self) -> None:
        pass


def told(result: Crawl) -> list[str]:
    lines = [line.partition("told: ")[2] for line in result.log.splitlines()]
    return [line for line in lines if line]


class Conductor(Listener):
    """Changes the limits of its hosts."""

    name = "conductor"

    def opened(self) -> None:
        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        politeness.set_rate("127.0.0.1", 10)
        politeness.hold("127.0.0.2", 2)
        politeness.hold("127.0.0.2", 1)
        politeness.hold("127.0.0.3", 3600)
        politeness.release("127.0.0.3")
        politeness.set_rate("127.0.0.4", 0.01)
        politeness.reset("127.0.0.4")
        politeness.hold("Key 7", 1)
        for name in ("*.example.org", "http://127.0.0.1/"):
            with pytest.raises(ValueError, match="slot"):
                politeness.hold(name, 3600)
        for wrong in ("set_rate", "hold"):
            with pytest.raises(ValueError, match="-1"):
                getattr(politeness, wrong)("127.0.0.1", -1)
        with pytest.raises(ValueError, match="exempt"):
            politeness.hold("localhost", 1)


def test_a_spider_may_change_limits_while_it_crawls(site: Callable[..., Site]) -> None:
    hosts = [f"127.0.0.{number}" for number in (1, 2, 3, 4)]
    server = site(5, hosts=hosts)
    urls = [url for host in hosts for url in server.page_urls(host)]
    requests: list[dict[str, Any]] = [{"url": url} for url in urls]
    in_a_slot = f"{server.url}/page/0?key=7"
    requests.append({"url": in_a_slot, "meta": {"politeness_slot": "Key 7"}})
    settings = fixed(4, POLITENESS_EXEMPT=["localhost"])
    result = crawl(Conductor, requests=requests, settings=settings)
    assert len(result.items) == 21
    in_slot = [a for a in server.arrivals if a.path == "/page/0?key=7"]
    usual = [a.at for a in server.arrivals if a.host == "127.0.0.1"]
    usual.remove(in_slot[0].at)
    # Four gaps of 0.1 s, and not of 0.25 s.
    assert 0.4 - server.jitter < usual[-1] - usual[0] < 0.8 + server.lost
    began_at = server.arrivals[0].at
    first = {h: min(a.at for a in server.arrivals if a.host == h) for h in hosts}
    # Of two holds the later deadline counts, not the sum.
    assert 1.5 < first["127.0.0.2"] - began_at < 2.5 + server.lost
    assert first["127.0.0.3"] - began_at < 0.5 + server.lost
    assert sum(server.gaps("127.0.0.4")) < 1.0 + 0.2 + server.lost
    assert "paused 127.0.0.2 2.0 the spider" in told(result)
    assert "resumed 127.0.0.2" in told(result)
    assert "paused 127.0.0.3 3600.0 the spider" in told(result)
    assert "resumed 127.0.0.3" in told(result)
    assert in_slot[0].at - began_at > 0.5


def test_signals_tell_of_refusals_pauses_and_the_place_that_was_found(
    site: Callable[..., Site],
) -> None:
    server = site(
        12, answer=lambda path, nth: REFUSAL if (path, nth) == ("/page/3", 1) else None
    )
    settings = fixed(8)
    result = crawl(Listener, urls=server.page_urls(), settings=settings)
    assert len(result.items) == 12
    assert [line.split()[0] for line in told(result)] == [
        "settled",
        "slowed",
        "paused",
        "resumed",
    ]
    assert "slowed 127.0.0.1 8.0 4.0 429 Too Many Requests" in told(result)
    assert "paused 127.0.0.1 1.0 429 Too Many Requests" in told(result)


def test_of_many_hosts_visited_once_only_the_last_are_remembered(
    site: Callable[..., Site],
) -> None:
    server = site(1)
    settings = {"POLITENESS_MAX_SLOTS": 20}
    result = crawl(Broad, settings=settings, hosts=80, proxy=server.url)
    assert server.pages_served()["/page/0"] == 80
    # robots.txt is asked for the same way as the pages.
    assert sum(a.path == "/robots.txt" for a in server.arrivals) == 80
    assert all(item["slots"] <= 20 + AT_ONCE for item in result.items)


def test_what_must_not_be_forgotten_is_not(site: Callable[..., Site]) -> None:
    server = site(1)
    slow = "http://slow.example/page/0"
    limits = {"slow.example": {"limit": "1/2s", "adaptive": False}}
    settings = {
        **NO_ROBOTS,
        "POLITENESS_MAX_SLOTS": 1,
        "POLITENESS_LIMITS": limits,
        "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter",
    }
    urls = [slow, *(f"http://host{n}.example/page/0" for n in range(100)), slow, slow]
    requests = [{"url": url, "meta": {"proxy": server.url}} for url in urls]
    crawl(requests=requests, settings=settings)
    assert len(server.arrivals) == 103
    assert min(server.gaps("slow.example")) > 2 - server.jitter


class Rash(Listener):
    """Does not want to wait for its host."""

    name = "rash"

    def paused(self, slot: str, seconds: float, reason: str) -> None:
        super().paused(slot, seconds, reason)
        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        politeness.reset(slot)


@pytest.mark.everywhere
def test_a_reset_ends_a_pause(site: Callable[..., Site]) -> None:
    refusal = Answer(429, {"Retry-After": "600"})
    server = site(
        2, answer=lambda path, nth: refusal if (path, nth) == ("/page/0", 1) else None
    )
    result = crawl(Rash, urls=server.page_urls(), settings=fixed(4))
    assert len(result.items) == 2
    assert "resumed 127.0.0.1" in told(result)
