"""scrapy-redis as the queue that several processes share, in a real Redis."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from redis import RedisCluster
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import ConnectionError, ResponseError
from redis.retry import Retry
from scrapy.settings import Settings

from scrapy_politeness import Addon
from scrapy_politeness.core.outcome import Outcome, Permit, Verdict
from scrapy_politeness.scrapy_redis import PoliteDupeFilter, PoliteQueue
from scrapy_politeness.storage import redis_requests
from scrapy_politeness.storage.marks import Placement, Where
from tests.support.ready import page, parts_of, urls
from tests.support.redis_server import redis_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from scrapy import Request
    from scrapy.crawler import Crawler

    from tests.support.redis_server import RedisServer

    Make: TypeAlias = Callable[..., PoliteQueue]
    Enqueue: TypeAlias = Callable[[str], bool]


@pytest.fixture
def make_queue(crawler: Callable[..., Crawler], redis_server: RedisServer) -> Make:
    """Each queue is that of another process."""

    def make(
        made: Crawler | None = None, timeout: float | None = None, **settings: Any
    ) -> PoliteQueue:
        made = made or crawler(**{"SCHEDULER_PERSIST": True, **settings})
        assert made.spider is not None
        client = redis_server.client(
            retry=Retry(NoBackoff(), 0), socket_timeout=timeout
        )
        return PoliteQueue(client, made.spider, "quiet:requests")

    return make


def test_what_one_process_pushes_another_pops(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    one.push(page("a/1", priority=1, meta={"k": "v"}))
    assert len(other) == 1
    popped = other.pop()
    assert popped is not None
    assert (popped.url, popped.priority) == ("http://a/1", 1)
    assert popped.meta["k"] == "v"
    assert one.pop() is None
    assert len(one) == len(other) == 0


def test_new_slots_are_found_within_a_second(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    assert other.pop() is None
    one.push(page("a/1"))
    deadline = time.monotonic() + 5
    while not urls(other):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_new_slots_are_found_with_every_pop(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    for n in range(3):
        one.push(page(f"a/{n}"))
    assert len(other) == 3
    one.push(page("b/1"))
    assert "b/1" in urls(other)[:3]


def test_priorities_hold_within_a_slot(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    for queue, path, priority in [
        (one, "low", -5),
        (one, "first", 0),
        (other, "second", 0),
        (one, "high", 300),
        (one, "third", 0),
    ]:
        queue.push(page(f"a/{path}", priority=priority))
    assert urls(other) == ["a/high", "a/first", "a/second", "a/third", "a/low"]


def placed(path: str, where: Where, seconds: float = 0.0, **options: Any) -> Request:
    request = page(path, **options)
    Placement(where, seconds).put_on(request)
    return request


def test_places_hold_within_a_slot(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    for queue, request in [
        (one, placed("a/last", Where.LAST, 60)),
        (one, placed("a/behind", Where.BEHIND, 60)),
        (other, page("a/1")),
        (one, placed("a/front", Where.FRONT)),
        (one, placed("a/second", Where.FRONT)),
        (other, placed("a/held", Where.HELD, 60)),
        (other, page("a/high", priority=1)),
        (other, page("a/low", priority=-1)),
    ]:
        queue.push(request)
    order = "high front second behind 1 low last"
    assert urls(one) == [f"a/{path}" for path in order.split()]
    assert len(one) == 1


@pytest.mark.parametrize("where", [Where.BEHIND, Where.LAST, Where.HELD])
def test_when_its_time_has_come_a_request_goes_to_the_front(
    make_queue: Make, redis_server: RedisServer, where: Where
) -> None:
    one, other = make_queue(), make_queue()
    one.push(page("a/1", priority=1))
    one.push(page("a/2"))
    one.push(placed("a/x", where, 0.5))
    assert len(other) == 3
    first = other.pop()
    assert first is not None
    assert first.url == "http://a/1"
    time.sleep(0.6)
    assert urls(other) == ["a/x", "a/2"]
    assert not redis_server.client().keys("*:ends")


def test_what_is_held_is_found_by_whoever_looks_first(
    make_queue: Make, crawler: Callable[..., Crawler]
) -> None:
    looking = crawler(SCHEDULER_PERSIST=True)
    one, other = make_queue(), make_queue(looking)
    pushed_at = time.monotonic()
    one.push(placed("a/1", Where.HELD, 0.5, meta={"k": "v"}))
    assert urls(other) == []
    assert len(one) == len(other) == 1  # so nobody closes
    assert pushed_at + 0.4 < parts_of(looking).alarm.at < time.monotonic() + 0.6
    time.sleep(0.6)
    popped = other.pop() or other.pop()  # who has to look first is woken again
    assert popped is not None
    assert popped.meta == {"k": "v"}
    assert one.pop() is None
    assert len(one) == len(other) == 0


def test_thousands_that_are_held_come_out_once_each(make_queue: Make) -> None:
    queue = make_queue()
    for n in range(1000):
        queue.push(placed(f"h{n % 7}/{n}", Where.HELD, 0.001 * n))
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < 1000:
        found += urls(queue)
        assert time.monotonic() < deadline
    assert len(set(found)) == 1000
    assert len(queue) == 0


def test_what_is_held_waits_as_long_while_redis_is_away(
    make_queue: Make, redis_server: RedisServer
) -> None:
    queue = make_queue()
    redis_server.kill()
    pushed_at = time.monotonic()
    queue.push(placed("a/1", Where.HELD, 2.0))
    assert len(queue) >= 1
    redis_server.start()
    while not urls(queue):
        assert time.monotonic() < pushed_at + 60
        time.sleep(0.02)
    assert time.monotonic() - pushed_at > 2.0


def test_a_slot_that_must_wait_stays_in_redis(make_queue: Make) -> None:
    one, other = make_queue(), make_queue(POLITENESS_LIMITS={"a": {"limit": "1/h"}})
    for n in range(3):
        one.push(page(f"a/{n}"))
        one.push(page(f"b/{n}"))
    assert len(other) == 6
    assert sorted(urls(other)) == ["a/0", "b/0", "b/1", "b/2"]
    assert len(other) == 2
    assert urls(one) == ["a/1", "a/2"]


def test_equal_requests_are_all_kept(make_queue: Make) -> None:
    queue = make_queue()
    for _ in range(3):
        queue.push(page("a/1", dont_filter=True))
    assert len(queue) == 3
    assert len(urls(queue)) == 3


def test_slots_that_others_have_emptied_cost_few_round_trips(
    make_queue: Make, redis_server: RedisServer
) -> None:
    one, other = make_queue(), make_queue()
    for n in range(500):
        one.push(page(f"host{n}/1"))
    assert len(other) == 500
    assert len(urls(one)) == 500
    one.push(page("last/1"))
    client = redis_server.client()
    client.config_resetstat()
    while not urls(other):
        assert len(other) == 1
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 20


def test_more_slots_than_one_answer_tells_are_all_found(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    for n in range(1500):
        one.push(page(f"host{n}/1"))
    found: list[str] = []
    while len(other):
        found += urls(other)
        time.sleep(0.05)
    assert len(set(found)) == 1500


@pytest.mark.parametrize("slot_key", ["{a}:*", "ü\ud800", "x" * 5000])
def test_any_name_of_a_slot_will_do(
    slot_key: str, make_queue: Make, redis_server: RedisServer
) -> None:
    one, other = make_queue(), make_queue()
    one.push(page("a/1", meta={"politeness_slot": slot_key}))
    names_seen = list(redis_server.client().scan_iter())
    assert len(other) == 1
    assert urls(other) == ["a/1"]
    assert len(max(names_seen, key=len)) < 300


def test_clearing_leaves_nothing(make_queue: Make, redis_server: RedisServer) -> None:
    one, other = make_queue(), make_queue()
    for n in range(1200):
        one.push(page(f"host{n}/1"))
    assert len(other) == 1200
    one.clear()
    assert redis_server.client().keys() == []
    while len(other):
        assert urls(other) == []
    one.push(page("host1/2"))
    assert len(other) == 1
    assert urls(other) == ["host1/2"]


def test_a_damaged_request_is_dropped_with_a_warning(
    make_queue: Make, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue()
    queue.push(page("a/1"))
    [key] = redis_server.client().keys("*:of:*")
    [member] = redis_server.client().zrange(key, 0, 0)
    assert isinstance(member, bytes)
    redis_server.client().zadd(key, {member[:30]: -1})
    queue.push(page("a/2"))
    assert urls(queue) == ["a/1", "a/2"]
    assert "cannot be restored" in caplog.text


def test_what_cannot_be_pushed_waits_until_redis_is_back(
    make_queue: Make, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue()
    queue.push(page("a/1"))
    redis_server.kill()
    for n in range(2, 5):
        queue.push(page(f"a/{n}"))
    assert queue.pop() is None
    assert len(queue) >= 3
    redis_server.start()
    deadline = time.monotonic() + 60
    found: list[str] = []
    while len(found) < 3:
        found += urls(queue)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # The first was lost with Redis, which keeps nothing here.
    assert found == ["a/2", "a/3", "a/4"]
    assert caplog.text.count("does not answer") == 1


def test_the_engine_is_woken_to_look_again(
    make_queue: Make, crawler: Callable[..., Crawler]
) -> None:
    looking = crawler(SCHEDULER_PERSIST=True)
    before = time.monotonic()
    assert make_queue(looking).pop() is None
    assert before < parts_of(looking).alarm.at <= time.monotonic() + 1


def test_requests_of_another_queue_are_left_alone(
    make_queue: Make, redis_server: RedisServer
) -> None:
    redis_server.client().zadd("quiet:requests", {"theirs": 0})
    with pytest.raises(ValueError, match="another SCHEDULER_QUEUE_CLASS"):
        make_queue()


def test_the_queue_must_outlive_a_process(make_queue: Make) -> None:
    with pytest.raises(ValueError, match="SCHEDULER_PERSIST=False: must be True"):
        make_queue(SCHEDULER_PERSIST=False)


def test_a_request_that_redis_refuses_blocks_no_others(
    make_queue: Make, redis_server: RedisServer
) -> None:
    queue = make_queue()
    redis_server.client().set("{quiet:requests}:of:a", "something else")
    with pytest.raises(ResponseError):
        queue.push(page("a/1"))
    queue.push(page("b/1"))
    redis_server.client().delete("{quiet:requests}:of:a")
    assert urls(queue) == ["b/1"]


@pytest.fixture
def short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not heard of is dead within a second."""
    monkeypatch.setattr(redis_requests, "_AT_WORK_MS", 500)


def end(queue: PoliteQueue, request: Request) -> None:
    """The engine is done with a request."""
    engine = queue._parts.engine._crawler.engine
    assert engine is not None
    assert engine._slot is not None
    engine._slot.remove_request(request)
    queue._shared.look()


def urls_within(queue: PoliteQueue, seconds: float, number: int) -> list[str]:
    deadline = time.monotonic() + seconds
    found: list[str] = []
    while len(found) < number and time.monotonic() < deadline:
        found += urls(queue)
        len(queue)  # which asks again
        time.sleep(0.05)
    return found


@pytest.mark.usefixtures("short_lives")
def test_the_others_get_what_a_process_that_died_had_popped(
    make_queue: Make, redis_server: RedisServer
) -> None:
    one, other = make_queue(), make_queue()
    for path in ("a/1", "a/2", "b/1", "b/2"):
        one.push(page(path))
    popped = [one.pop() for _ in range(3)]
    finished = popped.pop()
    assert finished is not None
    end(one, finished)
    lost = [request.url for request in popped if request is not None]
    # Here it dies. Nobody else closes meanwhile.
    assert len(other) == 1
    assert other.has_work("a")
    found = [f"http://{url}" for url in urls_within(other, 20, 3)]
    assert len(found) == 3
    assert {*found} > {*lost}
    assert finished.url not in found
    assert redis_server.client().hlen("quiet:requests") == 0


def test_what_is_moved_to_another_slot_is_at_work_only_once(
    make_queue: Make, crawler: Callable[..., Crawler]
) -> None:
    made = crawler(SCHEDULER_PERSIST=True)
    one, other = make_queue(made), make_queue()
    one.push(page("a/search/1"))
    registry = parts_of(made).registry
    splits, split = registry.names.splits, None
    assert splits is not None
    served, refused = Outcome(Verdict.SERVED), Outcome(Verdict.REFUSED)
    for n in range(1000):
        permit = Permit(float(n), True)
        for _ in range(3):
            splits.answered("a", "http://a/wiki/1", permit, served, n)
        search = "http://a/search/1"
        split = split or splits.answered("a", search, permit, refused, n)
    assert split is not None
    registry.split(split.name)
    popped = one.pop()
    assert popped is not None
    assert popped.url == "http://a/search/1"
    end(one, popped)
    assert len(one) == len(other) == 0
    assert not other.has_work("a")


@pytest.mark.usefixtures("short_lives")
def test_priorities_and_places_survive_a_death(make_queue: Make) -> None:
    one, other = make_queue(), make_queue()
    for path, priority in (("low", -1), ("high", 1), ("middle", 0)):
        one.push(page(f"a/{path}", priority=priority))
    assert urls(one) == ["a/high", "a/middle", "a/low"]
    other.push(page("a/new"))
    time.sleep(0.6)
    len(other)
    assert urls_within(other, 20, 4) == ["a/high", "a/middle", "a/new", "a/low"]


@pytest.mark.usefixtures("short_lives")
def test_nobody_dies_while_redis_is_away(
    make_queue: Make, redis_server: RedisServer
) -> None:
    one, other = make_queue(), make_queue()
    one.push(page("a/1"))
    assert urls(one) == ["a/1"]
    redis_server.stop_for_now()
    time.sleep(3.2)
    redis_server.go_on()
    assert len(other) == 0
    assert urls(other) == []
    one._shared.look()
    assert other.has_work("a")


def test_a_stall_loses_nothing_and_repeats_nothing(
    make_queue: Make, redis_server: RedisServer
) -> None:
    queue = make_queue(timeout=0.2)
    for path in ("a/1", "a/2", "b/1"):
        queue.push(page(path))
    redis_server.stop_for_now()
    assert queue.pop() is None
    queue.push(page("c/1"))
    redis_server.go_on()
    found = urls_within(queue, 20, 4)
    assert sorted(found) == ["a/1", "a/2", "b/1", "c/1"]
    assert len(queue) == 0


def test_a_pop_that_the_client_repeats_loses_nothing(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = redis_server.client(
        retry=Retry(NoBackoff(), 1), retry_on_error=[ConnectionError]
    )
    queue = redis_requests.SharedQueue(client, "quiet:requests")
    queue.push("a", 0, b"1")
    queue.push("a", 0, b"2")
    read = Connection.read_response
    lost: list[Any] = []

    def read_and_lose(connection: Connection, *args: Any, **options: Any) -> Any:
        answer = read(connection, *args, **options)
        if isinstance(answer, list) and b"1" in answer and not lost:
            lost.append(answer)
            raise ConnectionError
        return answer

    monkeypatch.setattr(Connection, "read_response", read_and_lose)
    replies = [queue.pop("a", 0, 10, [], at_work=True) for _ in range(3)]
    assert lost
    assert [(reply.body, reply.size) for reply in replies] == [
        (b"1", 1),
        (b"2", 0),
        (None, 0),
    ]
    assert [reply.others for reply in replies] == [0, 0, 0]


@pytest.mark.parametrize("limit", ["maxmemory", "min-replicas-to-write"])
def test_what_a_server_refuses_for_now_is_kept(
    make_queue: Make,
    redis_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
    limit: str,
) -> None:
    queue = make_queue()
    queue.push(page("a/1"))
    redis_server.say("CONFIG", "SET", limit, 1)
    for path in ("a/2", "b/1"):
        queue.push(page(path))
    assert "does not answer" in caplog.text
    assert len(queue) >= 2
    redis_server.say("CONFIG", "SET", limit, 0)
    assert sorted(urls_within(queue, 20, 3)) == ["a/1", "a/2", "b/1"]


def test_a_full_server_can_still_be_emptied(
    make_queue: Make, redis_server: RedisServer
) -> None:
    one, other = make_queue(), make_queue()
    for n in range(3):
        one.push(page(f"a/{n}"))
    redis_server.say("CONFIG", "SET", "maxmemory", 1)
    assert len(other) == 3
    assert urls(other) == ["a/0", "a/1", "a/2"]


@pytest.fixture
def filtered(
    make_queue: Make, crawler: Callable[..., Crawler], redis_server: RedisServer
) -> Callable[..., Enqueue]:
    """Makes processes that push what their filter lets pass."""

    def make() -> Enqueue:
        own = crawler(SCHEDULER_PERSIST=True, REDIS_URL=redis_server.url)
        queue = make_queue(own)
        assert own.spider is not None
        dupefilter = PoliteDupeFilter.from_spider(own.spider)

        def enqueue(path: str) -> bool:
            request = page(path)
            if dupefilter.request_seen(request):
                return False
            queue.push(request)
            return True

        return enqueue

    return make


def test_what_one_process_has_seen_another_has(
    filtered: Callable[..., Enqueue], make_queue: Make
) -> None:
    one, other = filtered(), filtered()
    assert [one("a/1"), one("a/1"), other("a/1"), other("a/2")] == [1, 0, 0, 1]
    assert len(make_queue()) == 2


def test_a_page_is_seen_only_when_it_waits(
    make_queue: Make, crawler: Callable[..., Crawler], redis_server: RedisServer
) -> None:
    own = crawler(SCHEDULER_PERSIST=True, REDIS_URL=redis_server.url)
    make_queue(own)
    assert own.spider is not None
    killed = PoliteDupeFilter.from_spider(own.spider)
    assert not killed.request_seen(page("a/1"))
    assert not redis_server.client().keys("*dupefilter*")


def test_links_found_while_redis_is_away_are_kept_and_filtered(
    filtered: Callable[..., Enqueue], make_queue: Make, redis_server: RedisServer
) -> None:
    one, other = filtered(), filtered()
    assert one("a/1")
    redis_server.say("CONFIG", "SET", "maxmemory", 1)
    assert [one("a/1"), one("a/2"), one("a/2"), one("a/3")] == [0, 1, 0, 1]
    redis_server.say("CONFIG", "SET", "maxmemory", 0)
    assert other("a/3")
    third = make_queue()
    time.sleep(1.1)  # then the first one tries again
    one("a/4")
    assert sorted(urls_within(third, 20, 4)) == ["a/1", "a/2", "a/3", "a/4"]
    assert urls(third) == []


def test_a_link_that_redis_has_refused_may_be_found_again(
    filtered: Callable[..., Enqueue], make_queue: Make, redis_server: RedisServer
) -> None:
    one = filtered()
    redis_server.client().set("{quiet:requests}:of:a", "something else")
    with pytest.raises(ResponseError):
        one("a/1")
    redis_server.client().delete("{quiet:requests}:of:a")
    assert one("a/1")
    assert len(make_queue()) == 1


def test_a_link_that_was_cleared_may_be_found_again(
    make_queue: Make, crawler: Callable[..., Crawler], redis_server: RedisServer
) -> None:
    own = crawler(SCHEDULER_PERSIST=True, REDIS_URL=redis_server.url)
    queue = make_queue(own)
    assert own.spider is not None
    dupefilter = PoliteDupeFilter.from_spider(own.spider)
    redis_server.say("CONFIG", "SET", "maxmemory", 1)
    request = page("a/1")
    assert not dupefilter.request_seen(request)
    queue.push(request)
    redis_server.say("CONFIG", "SET", "maxmemory", 0)
    queue.clear()
    assert not dupefilter.request_seen(page("a/1"))


def test_a_cluster_that_is_gone_loses_nothing(
    crawler: Callable[..., Crawler], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = crawler(SCHEDULER_PERSIST=True)
    assert own.spider is not None
    with redis_cluster(tmp_path) as nodes:
        client: Any = RedisCluster.from_url(nodes[0].url)
        queue = PoliteQueue(client, own.spider, "quiet:requests")
        queue.push(page("a/1"))
    for path in ("a/2", "b/1"):
        queue.push(page(path))
    assert "does not answer" in caplog.text
    assert len(queue) == 2 + 1
    client.close()


def test_a_cluster_may_keep_what_was_seen_on_another_node(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    with redis_cluster(tmp_path) as nodes:
        params = {"redis_cls": "redis.RedisCluster"}
        own = crawler(
            SCHEDULER_PERSIST=True, REDIS_URL=nodes[0].url, REDIS_PARAMS=params
        )
        assert own.spider is not None
        with RedisCluster.from_url(nodes[0].url) as client:
            queue = PoliteQueue(client, own.spider, "quiet:requests")
            dupefilter = PoliteDupeFilter.from_spider(own.spider)
            request = page("a/1")
            assert not dupefilter.request_seen(request)
            queue.push(request)
            assert dupefilter.request_seen(page("a/1"))
            assert urls(queue) == ["a/1"]
            dupefilter.server.close()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "scrapy_politeness.scrapy_redis.PoliteDupeFilter"),
        ({"POLITENESS_DUPEFILTER": False}, "scrapy_redis.dupefilter.RFPDupeFilter"),
        ({"DUPEFILTER_CLASS": "their.Own"}, "their.Own"),
    ],
)
def test_the_filter_of_scrapy_redis_is_replaced(
    settings: dict[str, Any], expected: str
) -> None:
    theirs = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_QUEUE_CLASS": "scrapy_politeness.scrapy_redis.PoliteQueue",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    }
    merged = Settings({**theirs, **settings})
    Addon().update_settings(merged)
    assert merged["DUPEFILTER_CLASS"] == expected
