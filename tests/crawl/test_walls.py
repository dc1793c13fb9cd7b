"""Walls: pages that stand in for the one that was asked for. What is too fast is told
from what is not welcome, and what only looks like a wall is a page."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness import PolitenessExtension
from tests.support.crawl import REACTORS, Reactor, crawl
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy.http import Response

    from tests.support.site import Site

BRISK: dict[str, Any] = {
    "POLITENESS_START_RATE": 20,
    "POLITENESS_MIN_RATE": 10,
    "POLITENESS_MAX_RATE": 100,
    "POLITENESS_BACKOFF_BASE": 0.2,
    "POLITENESS_BACKOFF_MAX": 0.4,
    "POLITENESS_ROBOTS": False,
}

CHALLENGE = Answer(403, {"cf-mitigated": "challenge"}, b"<title>Just a moment</title>")
CAPTCHA = Answer(302, {"Location": "/captcha?back=/page"})
HTML = {"Content-Type": "text/html"}
BLOCK_PAGE = Answer(200, HTML, b"<html>We have seen unusual traffic from you</html>")
SECONDARY_LIMIT = Answer(
    403,
    {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    gzip.compress(b'{"message": "You have exceeded a secondary rate limit."}'),
)

RULES = [
    {"redirect": "/captcha", "means": "too fast", "wait": 0.5},
    {"host": "127.0.0.1", "body": "unusual +traffic", "means": "too fast"},
    {"header": "X-Blocked: forever", "means": "not welcome"},
]


class Wall:
    """Stands for a while, once some pages were served."""

    def __init__(self, answer: Answer, after: int = 10, seconds: float = 0.8) -> None:
        self._answer = answer
        self._after = after
        self._seconds = seconds
        self._served = 0
        self._built_at: float | None = None

    def __call__(self, path: str, nth: int) -> Answer | None:
        now = time.monotonic()
        if self._served == self._after and self._built_at is None:
            self._built_at = now
        if self._built_at is not None and now < self._built_at + self._seconds:
            return self._answer
        self._served += 1
        return None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (CHALLENGE, "a challenge by Cloudflare"),
        (SECONDARY_LIMIT, "403 Forbidden, which speaks of a rate limit"),
        (CAPTCHA, "302, by rule 1 of POLITENESS_REFUSALS"),
        (BLOCK_PAGE, "200, by rule 2 of POLITENESS_REFUSALS"),
    ],
)
def test_a_wall_for_those_who_are_too_fast_is_waited_for(
    site: Callable[..., Site], answer: Answer, reason: str
) -> None:
    server = site(30, answer=Wall(answer))
    settings = {**BRISK, "POLITENESS_REFUSALS": RULES}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert sorted(item["url"] for item in result.items) == sorted(server.page_urls())
    assert {item["status"] for item in result.items} == {200}
    assert "/captcha?back=/page" not in {a.path for a in server.arrivals}
    assert f"because of {reason}; pausing" in result.log
    assert result.stats["finish_reason"] == "finished"
    walls = len(server.arrivals) - 30
    assert result.stats["politeness/rescheduled"] == walls
    key = f"downloader/response_status_count/{answer.status}"
    assert result.stats[key] == walls + (30 if answer.status == 200 else 0)


def test_four_pages_that_look_like_walls_are_pages(site: Callable[..., Site]) -> None:
    script = b'<script src="https://challenges.cloudflare.com/turnstile/v0/api.js">'
    named = {
        # A form with a captcha.
        "/form": Answer(200, HTML, script),
        # Cloudflare lets it pass.
        "/passed": Answer(200, {"cf-mitigated": "none", "Server": "cloudflare"}),
        # A page that is forbidden to everyone, and one about rate limits.
        "/forbidden": Answer(403, HTML, b"<title>403 Forbidden</title>"),
        "/api": Answer(200, HTML, b"You have exceeded a secondary rate limit: how to"),
        # Asked for, not redirected to.
        "/captcha": Answer(200, HTML, b"What is a captcha?"),
        # Another host's rule, and no text.
        "/image": Answer(200, {"Content-Type": "image/png"}, b"unusual traffic"),
    }
    server = site(20, named=named)
    urls = [server.url + path for path in named]
    urls = [*server.page_urls()[:10], *urls, *server.page_urls()[10:]]
    settings = {**BRISK, "POLITENESS_REFUSALS": RULES}
    result = crawl(urls=urls, settings=settings)
    assert len(result.items) == len(server.arrivals) == len(urls)
    statuses = {item["url"]: item["status"] for item in result.items}
    assert statuses.pop(server.url + "/forbidden") == 403
    assert set(statuses.values()) == {200}
    assert "politeness/refused" not in result.stats
    assert "politeness/slowdowns" not in result.stats
    assert "politeness/rescheduled" not in result.stats


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_a_challenge_for_everything_means_not_welcome(
    site: Callable[..., Site], reactor: Reactor, tmp_path: Path
) -> None:
    server = site(40, answer=lambda path, nth: CHALLENGE)
    other = site(10, hosts=["127.0.0.2"])
    report = tmp_path / "report.html"
    result = crawl(
        urls=server.page_urls() + other.page_urls("127.0.0.2"),
        settings={**BRISK, "POLITENESS_REPORT": str(report)},
        reactor=reactor,
    )
    errors = [item["error"] for item in result.items if "error" in item]
    assert errors == ["NotWelcome"] * 40
    assert len(server.arrivals) <= 5 + 8  # those under way at the first challenge
    assert len(other.pages_served()) == 10
    assert result.stats["finish_reason"] == "politeness_blocked"
    assert result.stats["politeness/blocked"] == 1
    assert result.stats["politeness/given_up"] == 40
    why = "a challenge by Cloudflare, 5 times in a row, no page served so far"
    assert result.log.count("this crawler is not welcome") == 2  # and in the summary
    assert f"127.0.0.1: this crawler is not welcome ({why})" in result.log
    assert "<h2>Not welcome</h2>" in report.read_text()
    assert why in report.read_text()


def test_a_host_that_has_served_pages_is_given_more_time(
    site: Callable[..., Site],
) -> None:
    server = site(30, answer=Wall(CHALLENGE, seconds=3))
    result = crawl(urls=server.page_urls(), settings=BRISK)
    assert {item["status"] for item in result.items} == {200}
    assert result.stats["politeness/refused"] > 5


def test_one_that_challenges_for_good_is_stopped_in_the_end(
    site: Callable[..., Site],
) -> None:
    server = site(30, answer=Wall(CHALLENGE, seconds=1000))
    settings = {**BRISK, "POLITENESS_BACKOFF_BASE": 0.1, "POLITENESS_BACKOFF_MAX": 0.2}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert [item.get("status") for item in result.items].count(200) == 10
    assert [item.get("error") for item in result.items].count("NotWelcome") == 20
    assert "times in a row, no page served for" in result.log
    walls = [arrival.at for arrival in server.arrivals if arrival.status == 403]
    assert walls[-1] - walls[0] > 12 * 0.2 - server.jitter


def test_pages_with_a_challenge_of_their_own_cost_only_themselves(
    site: Callable[..., Site],
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        return CHALLENGE if path == "/page/5" else None

    server = site(40, answer=judge)
    result = crawl(urls=server.page_urls(), settings=BRISK)
    failed = [item for item in result.items if item.get("status") != 200]
    assert [(i["error"], i["status"]) for i in failed] == [("HttpError", 403)]
    assert len(result.items) == 40
    assert result.stats["finish_reason"] == "finished"


@pytest.mark.parametrize(
    "headers", [{"X-Blocked": "forever"}, {"crawler-error": "CrawlerForbidden"}]
)
def test_what_says_not_welcome_stops_the_slot_at_once(
    site: Callable[..., Site], headers: dict[str, str]
) -> None:
    server = site(30, answer=Wall(Answer(403, headers), seconds=1000))
    settings = {**BRISK, "POLITENESS_REFUSALS": RULES}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(server.pages_served()) == 10
    assert len(server.arrivals) <= 10 + 8
    assert [item.get("error") for item in result.items].count("NotWelcome") == 20
    assert result.stats["finish_reason"] == "politeness_blocked"


def test_a_wall_never_gets_into_the_cache(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    settings = {**BRISK, **cache, "POLITENESS_REFUSALS": RULES}
    server = site(20, answer=Wall(BLOCK_PAGE, after=5, seconds=0.5))
    for _ in range(2):
        result = crawl(urls=server.page_urls(), settings=settings)
        assert len(result.items) == 20
    assert result.stats["httpcache/hit"] == 20
    assert "politeness/refused" not in result.stats


class Judge(Pages):
    """Knows a wall when it sees one."""

    name = "judge"
    welcome: bool = True

    def parse(self, response: Response) -> Iterator[Any]:
        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        if b"unusual traffic" in response.body:
            again = politeness.refuse(response, welcome=self.welcome)
            # Whoever says it once more changes nothing.
            assert politeness.refuse(response, welcome=self.welcome) is again
            if not again:
                yield {"url": response.url, "status": 0}
        else:
            yield from super().parse(response)


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_a_callback_may_say_that_it_was_refused(
    site: Callable[..., Site], reactor: Reactor, tmp_path: Path
) -> None:
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    server = site(30, answer=Wall(BLOCK_PAGE))
    result = crawl(
        Judge, urls=server.page_urls(), settings={**BRISK, **cache}, reactor=reactor
    )
    assert sorted(item["url"] for item in result.items) == sorted(server.page_urls())
    assert {item["status"] for item in result.items} == {200}
    assert "because of the spider's verdict; pausing" in result.log
    walls = len(server.arrivals) - 30
    assert result.stats["politeness/rescheduled"] == walls > 0
    again = crawl(
        Judge, urls=server.page_urls(), settings={**BRISK, **cache}, reactor=reactor
    )
    assert {item["status"] for item in again.items} == {200}
    assert again.stats["httpcache/hit"] == 30


def test_a_page_that_a_callback_always_refuses_is_given_back_to_it(
    site: Callable[..., Site],
) -> None:
    server = site(1, answer=lambda path, nth: BLOCK_PAGE)
    settings = {**BRISK, "POLITENESS_MAX_RESCHEDULES": 3}
    result = crawl(Judge, urls=server.page_urls(), settings=settings)
    assert [item["status"] for item in result.items] == [0]
    assert len(server.arrivals) == 4


def test_a_callback_may_say_that_it_is_not_welcome(site: Callable[..., Site]) -> None:
    server = site(30, answer=Wall(BLOCK_PAGE, seconds=1000))
    result = crawl(Judge, urls=server.page_urls(), settings=BRISK, welcome=False)
    assert [item.get("status") for item in result.items].count(200) == 10
    assert [item.get("error") for item in result.items].count("NotWelcome") >= 10
    assert result.stats["finish_reason"] == "politeness_blocked"


FORBIDDEN = Answer(403, HTML, b"<title>403 Forbidden</title>")


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_a_host_that_forbids_everything_for_a_while_is_waited_for(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    server = site(40, answer=Wall(FORBIDDEN, after=15))
    result = crawl(urls=server.page_urls(), settings=BRISK, reactor=reactor)
    assert sorted(item["url"] for item in result.items) == sorted(server.page_urls())
    assert {item["status"] for item in result.items} == {200}
    assert "because of 403 Forbidden for every page; pausing" in result.log


@pytest.mark.parametrize("concurrency", [1, 16])
def test_forbidden_pages_among_others_are_requested_once(
    site: Callable[..., Site], concurrency: int
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        return FORBIDDEN if int(path.rpartition("/")[2]) % 7 == 6 else None

    server = site(60, answer=judge)
    settings = {**BRISK, "CONCURRENT_REQUESTS": concurrency}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == len(server.arrivals) == 60
    assert sum(item["status"] == 403 for item in result.items) == 8
    assert "politeness/slowdowns" not in result.stats


def test_a_section_that_is_forbidden_is_passed_on_in_the_end(
    site: Callable[..., Site],
) -> None:
    def judge(path: str, nth: int) -> Answer | None:
        return FORBIDDEN if int(path.rpartition("/")[2]) >= 20 else None

    server = site(40, answer=judge)
    result = crawl(urls=server.page_urls(), settings=BRISK)
    statuses = sorted(item["status"] for item in result.items)
    assert statuses == [200] * 20 + [403] * 20
    assert "seem to be forbidden" in result.log
    # The first ones, and the probes, twice.
    assert len(server.arrivals) < 40 + 15
    assert result.stats["finish_reason"] == "finished"


def test_what_was_given_up_is_not_repeated_by_the_next_run(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(30, answer=Wall(CHALLENGE, after=0, seconds=1000))
    report = tmp_path / "report.html"
    settings = {
        **BRISK,
        "JOBDIR": str(tmp_path / "job"),
        "POLITENESS_REPORT": str(report),
    }
    result = crawl(urls=server.page_urls(), settings=settings)
    assert [item["error"] for item in result.items] == ["NotWelcome"] * 30
    asked = len(server.arrivals)
    again = crawl(urls=server.page_urls(), settings=settings)
    assert again.items == []
    assert len(server.arrivals) == asked
    assert again.stats["finish_reason"] == "finished"
    assert "<h2>Not welcome</h2>" in report.read_text()
