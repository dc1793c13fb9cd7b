"""When robots.txt is requested, and what applies until then, on virtual time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import Settings
from twisted.internet.defer import Deferred
from twisted.internet.error import DNSLookupError

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.exceptions import GivenUp, NotWelcome
from scrapy_politeness.robots import fetching
from scrapy_politeness.robots.fetching import Robots

if TYPE_CHECKING:
    from collections.abc import Coroutine

HOUR = 3600.0
MINUTE = 60.0

OBEYING = {"ROBOTSTXT_OBEY": True}
DELAY = b"User-agent: *\nCrawl-delay: 7\n"
DISALLOW = b"User-agent: *\nDisallow: /\n"

Answering = Callable[[float], "bytes | int | Exception"]


class World:
    """A crawl of one site, whose robots.txt is ``answer(now)``: its text, a status, or
    an exception."""

    def __init__(self, answer: Answering, **settings: Any) -> None:
        self.now = 1000.0
        self.answer = answer
        self.is_closing = False
        # When robots.txt was requested, and what Scrapy was taught.
        self.asked: list[float] = []
        self.taught: list[bytes] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        policy = Policy.read(Settings(settings))
        own = policy.for_slot("a.example")
        assert own is not None
        self.slot = Slot("a.example", own.bounds, spacing=0, concurrency=8)
        registry: Any = SimpleNamespace(slot_for=lambda request: self.slot)
        self.robots = Robots(
            policy,
            self,  # type: ignore[arg-type]
            registry,
            Mock(),
            None,
            watch=lambda: None,
            remembered=2,
            clock=lambda: self.now,
        )

    async def download(self, request: Request) -> Response:
        self.asked.append(self.now - 1000.0)
        answer = self.answer(self.now - 1000.0)
        if isinstance(answer, Exception):
            raise answer
        status, body = (answer, b"") if isinstance(answer, int) else (200, answer)
        return Response(request.url, status=status, body=body, request=request)

    async def teach_robots_txt(self, request: Request, rules: bytes) -> None:
        self.taught.append(rules)

    def count_robots_txt(self, response: Response | None) -> None:
        pass

    def call_later(self, wait: float, work: Callable[..., None], *args: Any) -> Any:
        entry = (self.now + wait, next(self._order), lambda: work(*args))
        heappush(self._timers, entry)
        return SimpleNamespace(cancel=lambda: None)

    def visit(self, site: str = "a.example", scheme: str = "https") -> list[bool]:
        """A page of the site wants to go; the result has the answer, once it is
        there."""
        request = Request(f"{scheme}://{site}/page")
        ticket: Any = SimpleNamespace(
            request=request, came_as=lambda slot: False, wait=lambda: None
        )
        answered: list[bool] = []
        turn = Deferred.fromCoroutine(self.robots.ensure(ticket, self.slot))
        turn.addCallback(answered.append)
        return answered

    def knows(self, site: str) -> bool:
        return self.robots.terms_for(Request(f"https://{site}/page")) is not None

    def error(self) -> Exception | None:
        return self.robots.error_for(Request("https://a.example/page"))

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, work = heappop(self._timers)
            work()
        self.now = until

    def crawl(self, hours: float) -> None:
        """Visit a page every minute."""
        for _ in range(int(hours * 60)):
            self.visit()
            self.sleep(MINUTE)


def _at_once(coroutine: Coroutine[Deferred[Any], Any, None]) -> Deferred[None]:
    return Deferred.fromCoroutine(coroutine)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    def build(answer: Answering, **settings: Any) -> World:
        new = World(answer, **settings)
        monkeypatch.setattr(fetching, "call_later", new.call_later)
        return new

    monkeypatch.setattr(fetching, "deferred_from_coro", _at_once)
    monkeypatch.setattr(fetching, "maybe_deferred_to_future", lambda turn: turn)
    return build


def until(seconds: float, before: Any, after: Any = DELAY) -> Answering:
    return lambda now: before if now < seconds else after


def test_the_sites_visited_last_are_remembered(world: Callable[..., World]) -> None:
    library = world(lambda now: DELAY)
    for site in ("a.example", "b.example"):
        library.visit(site)
        library.sleep(10)
    assert library.knows("b.example")
    assert library.knows("a.example")
    library.visit("c.example")
    library.sleep(10)
    sites = ["a.example", "b.example", "c.example"]
    assert [library.knows(site) for site in sites] == [True, False, True]


def test_a_site_that_is_being_asked_for_is_not_forgotten(
    world: Callable[..., World],
) -> None:
    library = world(until(HOUR, 503, DELAY), **OBEYING)
    waits = library.visit("a.example")
    library.answer = lambda now: DELAY
    for site in ("b.example", "c.example", "d.example"):
        library.visit(site)
    library.sleep(MINUTE)
    assert waits == [True]


@pytest.mark.parametrize("settings", [{}, OBEYING])
def test_a_crawl_of_days_reads_it_again_every_day(
    world: Callable[..., World], settings: dict[str, Any]
) -> None:
    crawl = world(
        until(25 * HOUR, DELAY, b"User-agent: *\nCrawl-delay: 2\n"), **settings
    )
    crawl.crawl(hours=23.9)
    assert crawl.asked == [0]
    crawl.crawl(hours=49)
    assert [round(at / HOUR) for at in crawl.asked] == [0, 24, 48, 72]
    assert crawl.slot.rate == pytest.approx(1 / 2, rel=0.02)
    if settings:
        assert crawl.taught[-1].endswith(b"2\n")


def test_pages_do_not_wait_while_it_is_read_again(world: Callable[..., World]) -> None:
    crawl = world(until(1, DELAY, 503), **OBEYING)
    crawl.crawl(hours=23.9)
    crawl.slot.block(Block.HOLD, crawl.now + 10 * HOUR)  # it cannot be sent now
    crawl.sleep(HOUR)
    assert crawl.visit() == [True]
    assert crawl.asked == [0]


@pytest.mark.parametrize("settings", [{}, OBEYING])
def test_the_last_copy_applies_while_there_is_no_newer_one(
    world: Callable[..., World],
    settings: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    changed = b"User-agent: *\nCrawl-delay: 9\n"
    crawl = world(until(HOUR, DELAY, 503), **settings)
    crawl.crawl(hours=30)
    assert crawl.slot.rate == pytest.approx(1 / 7, rel=0.01)
    assert crawl.visit() == [True]
    assert DISALLOW not in crawl.taught
    gaps = [later - at for at, later in pairwise(crawl.asked[1:])]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= HOUR
    assert caplog.text.count("the copy from 1 d ago still applies") == 1
    crawl.answer = lambda now: changed
    crawl.crawl(hours=1.1)
    assert crawl.slot.rate == pytest.approx(1 / 9, rel=0.01)
    assert "is reachable again" in caplog.text


@pytest.mark.parametrize(
    "trouble",
    [429, 500, 503, 599, ConnectionRefusedError(), TimeoutError()],
    ids=str,
)
def test_nothing_is_lost_by_two_minutes_of_trouble(
    world: Callable[..., World], trouble: Any, caplog: pytest.LogCaptureFixture
) -> None:
    crawl = world(until(2 * MINUTE, trouble), **OBEYING)
    waits = crawl.visit()
    crawl.sleep(2 * MINUTE)
    assert waits == []
    assert crawl.slot.claimable_at > crawl.now + HOUR
    status = crawl.slot.status(crawl.now)
    assert status.paused_because == "its robots.txt is unreachable"
    crawl.sleep(MINUTE)
    assert waits == [True]
    assert crawl.taught == [DELAY]
    assert crawl.asked == [0, 5, 15, 35, 75, 155]
    assert "is unreachable" in caplog.text
    assert "If it stays unreachable for 10 min, they are dropped" in caplog.text


def test_what_is_unreachable_for_long_disallows_everything(
    world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    crawl = world(until(3 * HOUR, 503), **OBEYING)
    waits = crawl.visit()
    crawl.sleep(9 * MINUTE)
    assert waits == []
    crawl.sleep(2 * MINUTE)
    assert waits == [True]
    assert crawl.taught == [DISALLOW]
    assert "has been unreachable for 10 min" in caplog.text
    assert "(503 Service Unavailable), which means that nothing may" in caplog.text
    # For later requests, it is asked for again.
    crawl.crawl(hours=5)
    assert crawl.taught == [DISALLOW, DELAY]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "ROBOTSTXT_OBEY is off"),
        (
            {**OBEYING, "POLITENESS_ROBOTS_UNREACHABLE": "allow"},
            "POLITENESS_ROBOTS_UNREACHABLE is 'allow'",
        ),
    ],
)
def test_where_it_need_not_be_obeyed_the_crawl_goes_on_without_it(
    world: Callable[..., World],
    settings: dict[str, Any],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    crawl = world(until(HOUR, 500), **settings)
    waits = crawl.visit()
    crawl.sleep(6)
    assert waits == [True]
    assert crawl.asked == [0, 5]
    assert f"crawling without its rules, since {reason}" in caplog.text
    crawl.crawl(hours=3)
    assert crawl.slot.rate == pytest.approx(1 / 7, rel=0.01)
    assert DISALLOW not in crawl.taught


@pytest.mark.parametrize(
    "answer", [404, 403, 401, 410, IgnoreRequest("max redirections reached")], ids=str
)
def test_a_host_without_robots_txt_allows_everything(
    world: Callable[..., World], answer: Any
) -> None:
    crawl = world(lambda now: answer, **OBEYING)
    assert crawl.visit() == [True]
    assert crawl.taught == [b""]
    assert crawl.asked == [0]


def test_the_pages_of_a_host_without_an_address_fail_as_its_robots_txt_does(
    world: Callable[..., World],
) -> None:
    unknown = DNSLookupError("no such host")
    crawl = world(until(HOUR, unknown), **OBEYING)
    waits = crawl.visit()
    crawl.sleep(10)
    assert waits == []
    crawl.sleep(10)
    assert waits == [True]
    assert crawl.error() is unknown
    crawl.crawl(hours=3)
    assert crawl.error() is None


def test_a_host_that_asks_for_an_hour_is_asked_twice_more(
    world: Callable[..., World],
) -> None:
    crawl = world(lambda now: 503, **OBEYING)

    def paused(now: float) -> int:
        crawl.slot.block(Block.PAUSE, crawl.now + HOUR)
        return 503

    crawl.answer = paused
    waits = crawl.visit()
    crawl.sleep(3 * HOUR)
    assert [round(at / HOUR) for at in crawl.asked] == [0, 1, 2]
    assert waits == [True]


def test_an_unreachable_port_does_not_disallow_the_other_scheme(
    world: Callable[..., World],
) -> None:
    crawl = world(until(1, DELAY, ConnectionRefusedError()), **OBEYING)
    crawl.visit()
    crawl.sleep(MINUTE)
    assert crawl.visit(scheme="http") == [True]
    crawl.sleep(HOUR)
    assert crawl.taught == [DELAY]


def test_a_host_that_is_given_up_is_not_crawled_without_its_rules(
    world: Callable[..., World],
) -> None:
    crawl = world(until(MINUTE, GivenUp("it has served nothing")), **OBEYING)
    crawl.visit()
    crawl.crawl(hours=2)
    assert b"" not in crawl.taught
    assert crawl.taught[-1] == DELAY


def test_nothing_waits_for_the_robots_txt_of_a_host_that_was_stopped(
    world: Callable[..., World],
) -> None:
    crawl = world(lambda now: NotWelcome("no crawlers"), **OBEYING)
    crawl.slot.block(Block.PAUSE, crawl.now + 10)
    waits = crawl.visit()
    crawl.slot.stop()
    crawl.sleep(MINUTE)
    assert waits == [True]
    assert isinstance(crawl.error(), NotWelcome)
    # The user may reset it.
    crawl.slot.reset()
    crawl.slot.set_dead(False)
    crawl.answer = lambda now: DELAY
    crawl.crawl(hours=0.1)
    assert crawl.error() is None
