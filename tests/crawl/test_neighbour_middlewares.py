"""Downloader middlewares of Scrapy and of users, each beside the add-on in a crawl."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from tests.support.crawl import crawl
from tests.support.settings import fixed
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy import Request

    from tests.support.site import Site

BRISK = fixed(
    20,
    POLITENESS_MIN_RATE=20,
    POLITENESS_BACKOFF_BASE=0.2,
    POLITENESS_BACKOFF_MAX=0.2,
)
REFUSED = Answer(429, {"Retry-After": "0"})


def test_what_http_cache_asks_again_costs_a_permit_and_is_fetched(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    etag = {"ETag": '"1"', "Cache-Control": "max-age=0"}
    first_run = True

    def judge(path: str, nth: int) -> Answer | None:
        if first_run:
            return Answer(headers=etag)
        # RFC2616 lets the cache answer in the place of a host that fails.
        if (path, nth) == ("/page/2", 2):
            return Answer(503, {"Retry-After": "1"})
        return Answer(304, etag, b"")

    server = site(5, answer=judge)
    settings = fixed(
        10,
        HTTPCACHE_ENABLED=True,
        HTTPCACHE_DIR=str(tmp_path),
        HTTPCACHE_POLICY="scrapy.extensions.httpcache.RFC2616Policy",
    )
    crawl(urls=server.page_urls(), settings=settings)
    first_run = False
    asked = len(server.arrivals)
    result = crawl(urls=server.page_urls(), settings=settings)
    assert sorted(i["url"] for i in result.items) == sorted(server.page_urls())
    assert {i["status"] for i in result.items} == {200}
    assert result.stats["httpcache/revalidate"] == 5
    again = server.arrivals[asked:]
    assert Counter(a.status for a in again) == {304: 5, 503: 1}
    assert all(a.headers["If-None-Match"] == '"1"' for a in again)
    assert again[-1].at - again[0].at > 1 + 3 * 0.1 - server.jitter
    assert result.stats["politeness/slots/127.0.0.1/served"] == 5


def test_scrapys_retries_follow_our_reschedules_and_who_handles_a_429_gets_it(
    site: Callable[..., Site],
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        if path == "/page/3":
            return REFUSED if nth == 1 else None
        return Answer(503) if path == "/page/4" else REFUSED

    server = site(5, answer=judge)
    metas = [
        {},
        {"handle_httpstatus_list": [429]},
        {"handle_httpstatus_all": True, "dont_retry": True},
        {"max_retry_times": 0},
        {"max_retry_times": 1},
    ]
    requests = [
        {"url": url, "meta": meta}
        for url, meta in zip(server.page_urls(), metas, strict=True)
    ]
    settings = {
        **BRISK,
        "POLITENESS_MAX_RESCHEDULES": 1,
        "RETRY_TIMES": 2,
        "HTTPERROR_ALLOWED_CODES": [503],
    }
    result = crawl(requests=requests, settings=settings)
    asked = Counter(a.path[-1] for a in server.arrivals)
    # Each once, and again by us; only then by Scrapy, as often as it was told.
    assert asked == {"0": 1 + 1 + 2, "1": 1 + 1 + 2, "2": 1, "3": 1 + 1, "4": 1 + 1 + 1}
    assert result.stats["retry/count"] == 2 + 2 + 1
    got = {i["url"][-1]: (i["status"], "error" in i) for i in result.items}
    assert got == {
        "0": (429, True),
        "1": (429, False),
        "2": (429, False),
        "3": (200, False),
        "4": (503, False),
    }
    assert sum(server.gaps()) > 0.04 * len(server.gaps())


def test_redirects_of_both_kinds_lead_to_a_refusal_and_in_the_end_to_the_page(
    site: Callable[..., Site],
) -> None:
    abroad = site(
        2, hosts=["127.0.0.2"], answer=lambda path, nth: REFUSED if nth == 1 else None
    )
    target = abroad.url_for("127.0.0.2")
    refresh = f'<meta http-equiv="refresh" content="0; url={target}/page/1">'

    def judge(path: str, nth: int) -> Answer | None:
        if path == "/page/0":
            headers = {"Location": f"{target}/page/0", "Set-Cookie": "a=b"}
            return Answer(302, headers)
        return Answer(body=f"<html><head>{refresh}</head></html>".encode())

    server = site(2, answer=judge)
    requests = [{"url": url, "cookies": {"my": "own"}} for url in server.page_urls()]
    result = crawl(requests=requests, settings=BRISK)
    assert {i["url"]: i["status"] for i in result.items} == {
        f"{target}/page/0": 200,
        f"{target}/page/1": 200,
    }
    assert len(server.arrivals) == 2
    assert Counter(a.status for a in abroad.arrivals) == {429: 2, 200: 2}
    assert result.stats["politeness/slots/127.0.0.2/refused"] == 2
    # Cookies are another host's business.
    assert not any("Cookie" in a.headers for a in abroad.arrivals)


class AfterTheGate:
    """Behind the gate, where a request has its permit already."""

    def process_request(self, request: Request) -> Request | Response | None:
        if request.url.endswith("/0"):
            return Response(request.url, body=b"made up")
        if request.url.endswith("/1"):
            return request.replace(url=request.url + "?other", dont_filter=True)
        if request.url.endswith("/2"):
            raise IgnoreRequest
        return None

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response:
        if request.url.endswith("/3"):
            return request.replace(url=request.url + "?again", dont_filter=True)
        return response


def test_a_middleware_behind_the_gate_may_do_what_it_likes(
    site: Callable[..., Site],
) -> None:
    server = site(
        8, answer=lambda path, nth: REFUSED if (path, nth) == ("/page/4", 1) else None
    )
    settings = {
        **BRISK,
        # One that is not given back would end the crawl.
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "DOWNLOADER_MIDDLEWARES": {AfterTheGate: 960},
    }
    result = crawl(urls=server.page_urls(), settings=settings, timeout=30)
    assert server.pages_served() == Counter(
        ["/page/1?other", "/page/3", "/page/3?again"]
        + [f"/page/{number}" for number in range(4, 8)]
    )
    got = {i["url"].rpartition("/")[2]: i.get("status") for i in result.items}
    assert got == {
        "0": 200,
        "1?other": 200,
        "2": None,
        "3?again": 200,
        **dict.fromkeys("4567", 200),
    }
    assert sum(server.gaps()) > 0.04 * len(server.gaps())
