"""The harness itself tells the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.support import failures
from tests.support.crawl import REACTORS, STOCK, Reactor, crawl, start_crawl
from tests.support.failures import Failures
from tests.support.site import DROPPED, HUNG, Answer, Quota, Site

OpenSite = Callable[..., Site]
Connect = Callable[[str], "Client"]


class BrokenExtension:
    @classmethod
    def from_crawler(cls, crawler: Any) -> BrokenExtension:
        raise ValueError("SOME_SETTING must be positive")


class Client:
    """One kept-alive connection."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        return response.status, dict(response.headers), response.read()


@pytest.fixture
def connect() -> Iterator[Callable[[str], Client]]:
    with ExitStack() as stack:

        def to(url: str) -> Client:
            connection = HTTPConnection(url.removeprefix("http://"), timeout=5)
            return Client(stack.enter_context(closing(connection)))

        yield to


def test_pages_are_served_and_arrivals_noted(site: OpenSite, connect: Connect) -> None:
    server = site(pages=2)
    client = connect(server.url)
    before = time.monotonic()
    status, _, body = client.get("/page/1")
    after = time.monotonic()
    assert (status, b"Page 1" in body) == (200, True)
    assert client.get("/page/2")[0] == client.get("/robots.txt")[0] == 404
    (first, *_) = server.arrivals
    assert before < first.at < after
    assert (first.path, first.host, first.status) == ("/page/1", "127.0.0.1", 200)
    assert server.pages_served() == {"/page/1": 1}


def test_gaps_are_those_of_the_requests(site: OpenSite, connect: Connect) -> None:
    server = site(pages=1)
    client = connect(server.url)
    asked, answered = [], []
    for pause in (0.05, 0.2, 0.0):
        asked.append(time.monotonic())
        client.get("/page/0")
        answered.append(time.monotonic())
        time.sleep(pause)
    for n, gap in enumerate(server.gaps()):
        assert asked[n + 1] - answered[n] < gap < answered[n + 1] - asked[n]
    assert len(server.gaps()) == 2


@pytest.mark.parametrize("window", ["moving", "fixed"])
def test_the_limiter_refuses_what_is_too_much(
    site: OpenSite, connect: Connect, window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_800_000_000.5
    monkeypatch.setattr("time.time", lambda: now)
    server = site(pages=1, limit="5/second", window=window, retry_after="{:.3f}".format)
    client = connect(server.url)
    statuses = [client.get("/page/0")[0] for _ in range(8)]
    assert statuses == [200] * 5 + [429] * 3
    assert server.refusals() == 3
    wait = float(client.get("/page/0")[1]["Retry-After"])
    assert 0.5 <= wait <= 1.0
    now += wait - 0.01
    assert client.get("/page/0")[0] == 429
    now += 0.02
    assert client.get("/page/0")[0] == 200


def test_limits_are_shared_by_the_hosts_unless_asked(
    site: OpenSite, connect: Connect
) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    for per_host, second in ((False, 429), (True, 200)):
        server = site(pages=1, limit="1/minute", per_host=per_host, hosts=hosts)
        statuses = [connect(server.url_for(h)).get("/page/0")[0] for h in hosts]
        assert statuses == [200, second]
        assert [a.host for a in server.arrivals] == hosts
        assert server.gaps("127.0.0.1") == []


def test_robots_txt_is_outside_the_limit_unless_asked(
    site: OpenSite, connect: Connect
) -> None:
    for limit_robots, second in ((False, 200), (True, 429)):
        server = site(robots="x", limit="1/minute", limit_robots=limit_robots)
        client = connect(server.url)
        assert client.get("/robots.txt")[2] == b"x"
        assert client.get("/robots.txt")[0] == second


def test_quota_headers_tell_what_is_left(site: OpenSite, connect: Connect) -> None:
    def headers(quota: Quota) -> dict[str, str]:
        return {"X-RateLimit-Remaining": f"{quota.remaining}/{quota.limit}"}

    server = site(pages=1, limit="3/minute", quota_headers=headers)
    assert connect(server.url).get("/page/0")[1]["X-RateLimit-Remaining"] == "2/3"


def test_answers_can_be_scripted(site: OpenSite, connect: Connect) -> None:
    def answer(path: str, nth: int) -> Answer | None:
        return Answer(503, {"Retry-After": "7"}, b"no") if nth == 1 else None

    server = site(pages=1, answer=answer)
    client = connect(server.url)
    status, headers, body = client.get("/page/0")
    assert (status, headers["Retry-After"], body) == (503, "7", b"no")
    assert client.get("/page/0")[0] == 200


def test_site_serves_as_a_proxy(site: OpenSite) -> None:
    server = site(pages=1)
    request = {"url": "http://a.test/page/0?q=1", "meta": {"proxy": server.url}}
    crawl(requests=[request], settings=STOCK)
    (arrival,) = server.arrivals
    assert (arrival.host, arrival.path) == ("a.test", "/page/0?q=1")
    assert arrival.status == 200


def test_killed_crawl_has_its_log_only(site: OpenSite) -> None:
    server = site(pages=1, latency=30)
    with start_crawl(urls=server.page_urls(), settings=STOCK) as running:
        running.wait_for_log("Spider opened")
        running.kill()
        result = running.wait(5)
    assert result.returncode == -9
    assert result.items == []
    assert "Spider opened" in result.log


def test_dropped_connections_are_noted(site: OpenSite, connect: Connect) -> None:
    server = site(answer=lambda path, nth: Answer(drop=True))
    with pytest.raises(ConnectionError):
        connect(server.url).get("/")
    assert [a.status for a in server.arrivals] == [DROPPED]


@pytest.mark.parametrize("reactor", REACTORS)
def test_stock_crawl_fetches_all_pages(site: OpenSite, reactor: Reactor) -> None:
    server = site(pages=30, latency=0.05)
    result = crawl(urls=server.page_urls(), settings=STOCK, reactor=reactor)
    assert result.returncode == 0
    assert {item["url"] for item in result.items} == set(server.page_urls())
    assert result.stats["downloader/response_status_count/200"] == 30
    assert "DEBUG: Crawled (200)" in result.log
    assert len(server.arrivals) == 30
    assert server.max_in_flight > 1
    assert result.seconds > 30 * 0.05 / server.max_in_flight


def test_too_many_in_flight_are_refused(site: OpenSite) -> None:
    server = site(pages=8, latency=0.3, limit_in_flight=3)
    crawl(urls=server.page_urls(), settings={**STOCK, "RETRY_ENABLED": False})
    assert server.refusals() == 5


def test_requests_take_their_arguments(site: OpenSite) -> None:
    server = site(pages=1)
    request = {"url": server.url + "/page/0", "headers": {"X-Test": "yes"}}
    again = {**request, "dont_filter": True, "method": "POST", "body": "a"}
    crawl(requests=[request, again], settings=STOCK)
    assert [a.headers["X-Test"] for a in server.arrivals] == ["yes", "yes"]


def test_failures_come_as_items(site: OpenSite) -> None:
    server = site(pages=1)
    urls = [server.url + "/none", "http://127.0.0.1:1/"]
    items = crawl(urls=urls, settings={**STOCK, "RETRY_ENABLED": False}).items
    found = {(item["error"], item.get("status")) for item in items}
    assert ("HttpError", 404) in found
    assert len(found) == 2


@pytest.mark.parametrize("reactor", REACTORS)
def test_interrupted_walk_is_continued(
    site: OpenSite, tmp_path: Any, reactor: Reactor
) -> None:
    server = site(pages=30, latency=0.05)
    settings = {**STOCK, "JOBDIR": str(tmp_path), "CONCURRENT_REQUESTS": 1}
    options: Any = {"urls": server.page_urls(), "settings": settings}
    with start_crawl("walk", reactor=reactor, **options) as running:
        server.wait_for_arrivals(8)
        running.interrupt()
        first = running.wait(10)
    assert first.returncode == 0
    assert first.stats["finish_reason"] == "shutdown"
    assert 8 <= len(first.items) < 30
    second = crawl("walk", reactor=reactor, **options)
    assert len(first.items) + len(second.items) == 30
    assert set(server.pages_served().values()) == {1}


@pytest.mark.parametrize("reactor", REACTORS)
def test_failure_at_start_is_seen(reactor: Reactor) -> None:
    settings = {**STOCK, "EXTENSIONS": {BrokenExtension: 1}}
    result = crawl(settings=settings, reactor=reactor)
    assert result.returncode != 0
    assert "ValueError: SOME_SETTING must be positive" in result.log


def test_endless_crawl_is_ended_with_its_log(site: OpenSite) -> None:
    server = site(pages=1, latency=30)
    with pytest.raises(TimeoutError, match="Spider opened"):
        crawl(urls=server.page_urls(), settings=STOCK, timeout=3)


def statuses(client: Client, paths: Iterable[str]) -> list[int]:
    return [client.get(path)[0] for path in paths]


def test_a_share_of_the_requests_fails_the_same_in_every_run(
    site: OpenSite, connect: Connect
) -> None:
    paths = [f"/page/{number}" for number in range(400)]
    servers = [site(pages=400, failures=Failures(errors=0.05)) for _ in range(2)]
    first = statuses(connect(servers[0].url), paths)
    again = statuses(connect(servers[1].url), reversed(paths))
    assert first == again[::-1]
    assert 10 <= first.count(503) <= 30
    assert first.count(200) == 400 - first.count(503)
    noted = [arrival.status for arrival in servers[0].arrivals if arrival.is_injected]
    assert noted == [503] * first.count(503)


def test_a_page_that_failed_by_chance_is_there_the_next_time(
    site: OpenSite, connect: Connect
) -> None:
    server = site(pages=100, failures=Failures(errors=0.1, broken=["/page/7"]))
    client = connect(server.url)
    for path in server.page_urls():
        path = path.removeprefix(server.url)
        while client.get(path)[0] == 503 and path != "/page/7":
            pass
    assert len(server.pages_served()) == 99
    assert statuses(client, ["/page/7"] * 5) == [503] * 5


def test_a_page_may_be_broken_for_a_while(site: OpenSite, connect: Connect) -> None:
    server = site(pages=1, failures=Failures(broken=["/page/0"], broken_times=2))
    assert statuses(connect(server.url), ["/page/0"] * 3) == [503, 503, 200]


def test_hanging_requests_end_when_the_client_gives_up(site: OpenSite) -> None:
    server = site(pages=1, failures=Failures(hangs=1.0))
    with closing(HTTPConnection(server.url.removeprefix("http://"))) as impatient:
        impatient.timeout = 0.2
        impatient.request("GET", "/page/0")
        with pytest.raises(TimeoutError):
            impatient.getresponse()
    assert [(a.status, a.is_injected) for a in server.arrivals] == [(HUNG, True)]


def test_resets_are_noted(site: OpenSite, connect: Connect) -> None:
    server = site(pages=1, failures=Failures(resets=1.0))
    with pytest.raises(ConnectionResetError):
        connect(server.url).get("/page/0")
    assert [(a.status, a.is_injected) for a in server.arrivals] == [(DROPPED, True)]


@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        (failures.constant(0.15), [0.15] * 6),
        (failures.runs(0.05, 0.5, 2), [0.05, 0.05, 0.5, 0.5, 0.05, 0.05]),
        (failures.from_time({0: 0.05, 3: 0.3}), [0.05] * 3 + [0.3] * 3),
    ],
)
def test_latencies(latency: failures.Latency, expected: list[float]) -> None:
    assert [latency(f"/page/{n}", float(n)) for n in range(6)] == expected


def test_random_latencies_belong_to_their_pages() -> None:
    paths = [f"/page/{number}" for number in range(1000)]
    mixed = [failures.mixed(0.05, 0.5)(path, 0.0) for path in paths]
    assert set(mixed) == {0.05, 0.5}
    assert 450 < mixed.count(0.5) < 550
    spread = [failures.lognormal(0.1, 1.5, most=5.0)(path, 0.0) for path in paths]
    assert spread == [failures.lognormal(0.1, 1.5, most=5.0)(p, 9.0) for p in paths]
    assert 0.08 < sorted(spread)[500] < 0.12
    assert max(spread) == 5.0


def test_robots_txt_is_fast_beside_slow_pages(site: OpenSite, connect: Connect) -> None:
    slow = Failures(latency=failures.constant(0.2), errors=1.0)
    server = site(pages=1, robots="x", failures=slow)
    client = connect(server.url)
    began_at = time.monotonic()
    assert client.get("/robots.txt")[0] == 200
    fetched_at = time.monotonic()
    assert client.get("/page/0")[0] == 503
    assert time.monotonic() - fetched_at >= 0.2
    assert fetched_at - began_at < 0.1 + server.lost


def test_single_requests_are_answered_otherwise(
    site: OpenSite, connect: Connect
) -> None:
    later = Answer(429, {"Retry-After": "30"})
    plan = Failures(events={1: later, 3: failures.UNAVAILABLE})
    client = connect(site(pages=2, robots="x", failures=plan).url)
    assert client.get("/robots.txt")[0] == 200
    assert client.get("/page/0")[1]["Retry-After"] == "30"
    assert statuses(client, ["/page/0"] * 3) == [200, 503, 200]


@pytest.mark.parametrize("path", ["/page/0", "/robots.txt"])
def test_an_outage_has_a_beginning_and_an_end(site: OpenSite, path: str) -> None:
    server = site(pages=1, robots="x", failures=Failures(outages=[(20.0, 40.0)]))
    found = {}
    for seconds in (0.0, 19.9, 20.0, 39.9, 40.0):
        answer, _ = server.arrived(1000.0 + seconds, path, "127.0.0.1", {})
        found[seconds] = answer.status
    assert found == {0.0: 200, 19.9: 200, 20.0: 503, 39.9: 503, 40.0: 200}


def test_the_limit_comes_before_the_weather(site: OpenSite, connect: Connect) -> None:
    server = site(pages=1, limit="3/minute", failures=Failures(errors=1.0))
    assert statuses(connect(server.url), ["/page/0"] * 4) == [503] * 3 + [429]
    assert [a.is_injected for a in server.arrivals] == [True] * 3 + [False]


def test_each_backend_has_a_limit_of_its_own(site: OpenSite, connect: Connect) -> None:
    server = site(pages=1, limit="5/minute", backends=4)
    found = statuses(connect(server.url), ["/page/0"] * 40)
    assert found.count(200) == 20
    assert 5 < found.index(429) < 20


def test_named_pages_have_headers_of_their_own(
    site: OpenSite, connect: Connect
) -> None:
    login = Answer(headers={"RateLimit-Remaining": "4"})
    client = connect(site(pages=1, named={"/login": login}).url)
    assert client.get("/login")[1]["RateLimit-Remaining"] == "4"
    assert "RateLimit-Remaining" not in client.get("/page/0")[1]
