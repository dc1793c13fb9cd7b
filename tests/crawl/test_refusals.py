"""429, 503, timeouts, Retry-After: what the site sees, and that nothing is lost."""

from __future__ import annotations

import re
from email.utils import formatdate
from itertools import pairwise
from statistics import median
from time import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.crawl import REACTORS, Reactor, crawl
from tests.support.site import Answer, refuse
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twisted.python.failure import Failure

    from tests.support.site import Site

BRISK = {
    "POLITENESS_START_RATE": 20,
    "POLITENESS_MAX_RATE": 100,
    "POLITENESS_BACKOFF_BASE": 0.5,
    "POLITENESS_ROBOTS": False,
}

SLOWDOWN = re.compile(r"127\.0\.0\.1: rate (\S+)/s → (\S+)/s because of (.+); pausing")


def refuse_first(path: str, **answer: Any) -> Callable[[str, int], Answer | None]:
    """Refuse the first request for ``path`` and nothing else."""

    def judge(asked: str, nth: int) -> Answer | None:
        return Answer(**answer) if asked == path and nth == 1 else None

    return judge


def silence_after(server: Site, path: str) -> float:
    """For how long nothing arrived after the first request for ``path``. What was sent
    before its answer was there may still have come."""
    refused_at = next(a.at for a in server.arrivals if a.path == path)
    times = [a.at for a in server.arrivals if a.at >= refused_at]
    return max(later - at for at, later in pairwise(times))


@pytest.mark.parametrize("retry_after", [None, lambda wait: str(int(wait) + 1)])
def test_all_pages_behind_a_rate_limit_are_fetched_once(
    site: Callable[..., Site], retry_after: Callable[[float], str] | None
) -> None:
    server = site(100, limit="20/second", retry_after=retry_after)
    settings = {**BRISK, "POLITENESS_START_RATE": 5, "POLITENESS_BACKOFF_BASE": 1}
    result = crawl(urls=server.page_urls(), settings=settings, timeout=120)
    served = server.pages_served()
    assert set(served) == {f"/page/{number}" for number in range(100)}
    assert set(served.values()) == {1}
    assert {item["url"] for item in result.items} == set(server.page_urls())
    # A search that meets the limit early, or twice, costs a few more.
    assert server.refusals() <= 100 / 5
    # A machine that is busy may never get as far as the limit.
    assert result.stats.get("politeness/rescheduled", 0) == server.refusals()


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 429}, "429 Too Many Requests"),
        ({"status": 503}, "503 Service Unavailable"),
        ({"delay": 2.0}, "timeout"),
    ],
)
def test_429_503_and_timeouts_halve_the_rate_visibly_in_the_log(
    site: Callable[..., Site], answer: dict[str, Any], reason: str, reactor: Reactor
) -> None:
    server = site(4, answer=refuse_first("/page/3", **answer))
    *others, last = ({"url": url} for url in server.page_urls())
    # What a busy machine answers late is no timeout.
    meta = {"download_timeout": 1} if "delay" in answer else {}
    requests = [*others, {**last, "meta": meta}]
    result = crawl(requests=requests, settings=BRISK, reactor=reactor)
    [(before, after, told)] = SLOWDOWN.findall(result.log)
    assert (before, told) == ("20", reason)
    # Or less, where the machine was too busy to send as many.
    assert float(after) <= 10
    assert sorted(item["status"] for item in result.items) == [200] * 4


def test_the_rate_is_halved_once_per_flight(site: Callable[..., Site]) -> None:
    def refuse_all_once(path: str, nth: int) -> Answer | None:
        return Answer(429, delay=0.5) if nth == 1 else None

    server = site(8, answer=refuse_all_once)
    settings = {**BRISK, "POLITENESS_START_RATE": 40}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert server.refusals() == 8
    assert SLOWDOWN.findall(result.log) == [("40", "20", "429 Too Many Requests")]
    assert len(result.items) == 8


def date_in(seconds: float) -> str:
    return formatdate(time() + seconds, usegmt=True)


@pytest.mark.parametrize(
    ("value", "at_least", "at_most"),
    [
        ("2", 2.0, 2.5),
        ("1.2", 1.2, 1.7),
        ("0", 0.0, 0.5),
        ("-5", 0.8, 1.4),
        ("1e400", 0.8, 1.4),
        ("soon", 0.8, 1.4),
        ("NaN", 0.8, 1.4),
        ("9" * 40, 2.2, 2.8),
        (lambda: date_in(3), 1.9, 2.8),  # capped, and a date knows whole seconds only
        (lambda: date_in(-3600), 0.0, 0.5),
        ("", 0.8, 1.4),
    ],
)
def test_retry_after_is_waited_for_and_nothing_crashes(
    site: Callable[..., Site],
    value: str | Callable[[], str],
    at_least: float,
    at_most: float,
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        if (path, nth) != ("/page/5", 1):
            return None
        text = value() if callable(value) else value
        return Answer(429, {"Retry-After": text})

    server = site(6, answer=judge)
    settings = {
        **BRISK,
        "POLITENESS_BACKOFF_BASE": 0.8,
        "POLITENESS_RETRY_AFTER_MAX": 2.2,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert sorted(item["status"] for item in result.items) == [200] * 6
    assert "Traceback" not in result.log
    silence = silence_after(server, "/page/5")
    assert at_least - server.jitter < silence < at_most + server.lost
    capped = "POLITENESS_RETRY_AFTER_MAX; waiting 2.2 s" in result.log
    assert capped == (at_least in (1.9, 2.2))


@pytest.mark.everywhere
def test_a_paused_slot_does_not_hold_up_the_others(site: Callable[..., Site]) -> None:
    headers = {"Retry-After": "3"}
    limited = site(3, answer=refuse_first("/page/2", status=429, headers=headers))
    other = site(40, hosts=["127.0.0.2"])
    urls = limited.page_urls() + other.page_urls("127.0.0.2")
    crawl(urls=urls, settings=BRISK)
    assert other.arrivals[-1].at < limited.arrivals[-1].at + other.lost
    assert silence_after(limited, "/page/2") > 3 - limited.jitter


def test_retry_after_on_a_redirect_pauses_without_halving(
    site: Callable[..., Site],
) -> None:
    headers = {"Location": "/page/1", "Retry-After": "1"}
    server = site(2, answer=refuse_first("/page/0", status=302, headers=headers))
    result = crawl(urls=[server.url + "/page/0"], settings=BRISK)
    silence = silence_after(server, "/page/0")
    assert 1 - server.jitter < silence < 1.5 + server.lost
    assert SLOWDOWN.findall(result.log) == []
    assert [item["url"] for item in result.items] == [server.url + "/page/1"]


def test_retry_after_on_a_served_page_means_nothing(site: Callable[..., Site]) -> None:
    server = site(6, answer=lambda path, nth: Answer(headers={"Retry-After": "30"}))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    assert len(result.items) == 6
    assert result.seconds < 20


def test_mediawiki_refuses_with_status_200(site: Callable[..., Site]) -> None:
    headers = {"MediaWiki-API-Error": "ratelimited"}
    server = site(3, answer=refuse_first("/page/2", headers=headers))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    [(_, _, reason)] = SLOWDOWN.findall(result.log)
    assert reason == "MediaWiki ratelimited"
    silence = silence_after(server, "/page/2")
    assert 0.5 - server.jitter < silence < 1 + server.lost
    assert server.pages_served()["/page/2"] == 2
    assert len(result.items) == 3


@pytest.mark.parametrize(
    ("headers", "silence"),
    [
        ({"MediaWiki-API-Error": "maxlag", "Retry-After": "2"}, 2.0),
        ({"MediaWiki-API-Error": "maxlag"}, 0.5),
        ({"MediaWiki-API-Error": "readonly"}, 0.5),
    ],
)
def test_a_wiki_that_is_busy_is_waited_for_at_the_same_rate(
    site: Callable[..., Site], headers: dict[str, str], silence: float
) -> None:
    server = site(10, answer=refuse_first("/page/5", headers=headers))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    assert SLOWDOWN.findall(result.log) == []
    assert f"because of MediaWiki {headers['MediaWiki-API-Error']}" in result.log
    silent = silence_after(server, "/page/5")
    assert silence - server.jitter < silent < silence + 0.5 + server.lost
    assert server.pages_served()["/page/5"] == 2
    assert len(result.items) == 10
    assert result.stats["politeness/refused"] == 1
    assert result.stats["politeness/rescheduled"] == 1
    assert "politeness/slowdowns" not in result.stats
    after = [gap for gap in server.gaps() if gap < silence / 2]
    assert median(after) < 1.8 / BRISK["POLITENESS_START_RATE"] + server.jitter


def test_other_mediawiki_errors_go_to_the_spider(site: Callable[..., Site]) -> None:
    headers = {"MediaWiki-API-Error": "badtitle"}
    server = site(1, answer=lambda path, nth: Answer(headers=headers))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    assert len(server.arrivals) == len(result.items) == 1


@pytest.mark.everywhere
def test_after_the_last_reschedule_the_refusal_goes_on_to_the_errback(
    site: Callable[..., Site],
) -> None:
    server = site(1, answer=lambda path, nth: Answer(429, {"Retry-After": "0"}))
    settings = {
        **BRISK,
        "POLITENESS_BACKOFF_MAX": 0.5,
        "POLITENESS_MAX_RESCHEDULES": 3,
        "RETRY_ENABLED": False,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(server.arrivals) == 4
    assert [(i["error"], i["status"]) for i in result.items] == [("HttpError", 429)]
    assert result.stats["politeness/given_up"] == 1


@pytest.mark.everywhere
@pytest.mark.parametrize("reschedules", [0, 1])
def test_what_scrapy_retries_after_that_is_given_up_once(
    site: Callable[..., Site], reschedules: int
) -> None:
    server = site(1, answer=lambda path, nth: Answer(429, {"Retry-After": "0"}))
    settings = {
        **BRISK,
        "POLITENESS_BACKOFF_MAX": 0.5,
        "POLITENESS_MAX_RESCHEDULES": reschedules,
        "RETRY_TIMES": 2,
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(server.arrivals) == 3 + reschedules
    assert result.stats["politeness/given_up"] == 1
    assert result.log.count("passing the refusal on") == 1


class Stubborn(Pages):
    """Asks again for what was given up."""

    name = "stubborn"

    def failed(self, failure: Failure) -> Iterator[Any]:
        yield from super().failed(failure)
        yield failure.request.replace(dont_filter=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("reactor", REACTORS)
def test_a_host_that_was_given_up_is_asked_again_after_its_silence(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(1, answer=refuse(6))
    settings = {
        **BRISK,
        "POLITENESS_BACKOFF_BASE": 0.3,
        "POLITENESS_BACKOFF_MAX": 0.3,
        "POLITENESS_MIN_RATE": 5,
        "POLITENESS_GIVE_UP_AFTER": 1,
    }
    result = crawl(
        Stubborn, urls=server.page_urls(), settings=settings, reactor=reactor
    )
    *given_up, served = result.items
    assert served["status"] == 200
    assert {item["error"] for item in given_up} == {"GivenUp"}
    assert len(server.arrivals) == 7


def test_rescheduling_does_not_use_up_the_retries(site: Callable[..., Site]) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        statuses = {1: 429, 2: 500, 3: 429, 4: 500, 5: 429}
        return Answer(statuses[nth]) if nth in statuses else None

    server = site(1, answer=judge)
    settings = {**BRISK, "POLITENESS_BACKOFF_MAX": 0.5, "RETRY_TIMES": 2}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert [item.get("status") for item in result.items] == [200]
    assert result.stats["retry/count"] == 2


def test_a_request_that_must_not_be_retried_is_not_rescheduled(
    site: Callable[..., Site],
) -> None:
    server = site(1, answer=refuse_first("/page/0", status=429))
    request = {"url": server.page_urls()[0], "meta": {"dont_retry": True}}
    result = crawl(requests=[request], settings=BRISK)
    assert [item["status"] for item in result.items] == [429]
    assert len(SLOWDOWN.findall(result.log)) == 1


def test_a_status_that_is_not_configured_is_left_to_scrapy(
    site: Callable[..., Site],
) -> None:
    server = site(1, answer=refuse_first("/page/0", status=503))
    settings = {**BRISK, "POLITENESS_HTTP_CODES": [429]}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert result.stats["retry/count"] == 1
    assert "politeness/rescheduled" not in result.stats
