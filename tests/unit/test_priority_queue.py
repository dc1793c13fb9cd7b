"""The priority queue's contract, in memory and on disk."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from queuelib.queue import (
    FifoDiskQueue,
    FifoSQLiteQueue,
    LifoDiskQueue,
    LifoSQLiteQueue,
)
from scrapy import Request
from scrapy.core.scheduler import Scheduler
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.squeues import (
    FifoMemoryQueue,
    LifoMemoryQueue,
    PickleFifoDiskQueue,
    PickleLifoDiskQueue,
)
from scrapy.utils.misc import build_from_crawler

from scrapy_politeness import PolitePriorityQueue
from scrapy_politeness.storage.job import (
    SIGNATURE,
    has_requests_of_others,
    has_requests_of_ours,
)
from tests.support.ready import as_if_killed, page, parts_of, urls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from scrapy.crawler import Crawler

    Make: TypeAlias = Callable[..., PolitePriorityQueue]


KINDS = ["memory", "disk"]


@pytest.fixture(params=KINDS)
def make_queue(
    request: pytest.FixtureRequest,
    crawler: Callable[..., Crawler],
    tmp_path: Path,
) -> Callable[..., PolitePriorityQueue]:
    def make(
        *, fifo: bool = False, start: bool = True, **settings: Any
    ) -> PolitePriorityQueue:
        if request.param == "memory":
            first_in, last_in, key = FifoMemoryQueue, LifoMemoryQueue, ""
        else:
            first_in, last_in = PickleFifoDiskQueue, PickleLifoDiskQueue
            key = str(tmp_path)
        queue: PolitePriorityQueue = build_from_crawler(
            PolitePriorityQueue,
            crawler(**settings),
            downstream_queue_cls=first_in if fifo else last_in,
            key=key,
            start_queue_cls=first_in if start else None,
        )
        return queue

    return make


def test_an_empty_queue(make_queue: Make) -> None:
    queue = make_queue()
    assert len(queue) == 0
    assert queue.pop() is None
    assert queue.peek() is None
    assert queue.close() == []


def test_last_in_first_out(make_queue: Make) -> None:
    queue = make_queue()
    for path in ("h/1", "h/2", "h/3"):
        queue.push(page(path))
    assert len(queue) == 3
    assert urls(queue) == ["h/3", "h/2", "h/1"]
    assert len(queue) == 0


def test_first_in_first_out(make_queue: Make) -> None:
    queue = make_queue(fifo=True)
    for path in ("h/1", "h/2", "h/3"):
        queue.push(page(path))
    assert urls(queue) == ["h/1", "h/2", "h/3"]


def test_priorities_within_a_slot(make_queue: Make) -> None:
    queue = make_queue()
    for priority in (0, -3, 5, 2, 5):
        queue.push(page(f"h/{priority}", priority=priority))
    assert urls(queue) == ["h/5", "h/5", "h/2", "h/0", "h/-3"]


def test_start_requests_go_in_order_and_after_others_of_their_priority(
    make_queue: Make,
) -> None:
    queue = make_queue()
    for path in ("h/start1", "h/start2"):
        queue.push(page(path, meta={"is_start_request": True}))
    for path in ("h/1", "h/2"):
        queue.push(page(path))
    queue.push(page("h/urgent", priority=1, meta={"is_start_request": True}))
    assert urls(queue) == ["h/urgent", "h/2", "h/1", "h/start1", "h/start2"]


def test_start_requests_are_like_others_where_they_have_no_queue(
    make_queue: Make,
) -> None:
    queue = make_queue(start=False)
    queue.push(page("h/1", meta={"is_start_request": True}))
    queue.push(page("h/2"))
    queue.push(page("h/3", meta={"is_start_request": True}))
    assert urls(queue) == ["h/3", "h/2", "h/1"]


def test_slots_take_turns(make_queue: Make) -> None:
    queue = make_queue()
    for number in range(4):
        for host in ("a", "b", "c"):
            queue.push(page(f"{host}/{number}"))
    hosts = [url[0] for url in urls(queue)]
    for turn in range(0, 12, 3):
        assert set(hosts[turn : turn + 3]) == {"a", "b", "c"}


def test_peek_shows_what_pop_returns(make_queue: Make) -> None:
    queue = make_queue()
    for path in ("a/1", "a/2", "b/1"):
        queue.push(page(path))
    while (seen := queue.peek()) is not None:
        assert len(queue) > 0
        popped = queue.pop()
        assert popped is not None
        assert popped.url == seen.url
    assert len(queue) == 0


def test_a_slot_that_is_held_keeps_its_requests_and_holds_no_one_else(
    make_queue: Make,
) -> None:
    queue = make_queue(POLITENESS_START_RATE=0.5)
    for path in ("slow/1", "slow/2", "other/1", "other/2"):
        queue.push(page(path))
    assert sorted(urls(queue)) == ["other/2", "slow/2"]
    assert len(queue) == 2
    assert "slow" in queue


def test_concurrency_per_domain_bounds_what_is_handed_out(make_queue: Make) -> None:
    queue = make_queue(CONCURRENT_REQUESTS_PER_DOMAIN=3)
    for number in range(10):
        queue.push(page(f"h/{number}"))
    handed_out = [queue.pop() for _ in range(5)]
    assert [request is None for request in handed_out] == [False] * 3 + [True] * 2


def test_exempt_requests_and_hosts_are_never_held(make_queue: Make) -> None:
    queue = make_queue(POLITENESS_START_RATE=0.5, POLITENESS_EXEMPT=["free.example"])
    for number in range(3):
        queue.push(page(f"free.example/{number}"))
        queue.push(page(f"h/{number}", meta={"politeness_exempt": True}))
    assert len(urls(queue)) == 6


def test_malformed_urls_share_one_slot(make_queue: Make) -> None:
    queue = make_queue(POLITENESS_START_RATE=0.5)
    for url in ("http:///a", "http://:80/b", "https:///c"):
        queue.push(Request(url))
    assert len(urls(queue)) == 1
    assert len(queue) == 2


@pytest.mark.parametrize("slot", [7, ("a", 1), b"a"])
def test_a_slot_that_is_no_string_is_refused_with_a_clear_error(
    make_queue: Make, slot: Any
) -> None:
    queue = make_queue()
    with pytest.raises(TypeError, match=r"slot .* must be a string"):
        queue.push(page("h/1", meta={"download_slot": slot}))
    assert len(queue) == 0
    queue.push(page("h/2"))
    assert urls(queue) == ["h/2"]


def test_a_slot_with_requests_waiting_is_not_forgotten(
    crawler: Callable[..., Crawler],
) -> None:
    made = crawler(POLITENESS_MAX_SLOTS=3)
    registry = parts_of(made).registry
    queue = PolitePriorityQueue.from_crawler(made, LifoMemoryQueue, "")
    queue.push(page("waiting/1"))
    waiting, idle = registry.slot("waiting"), registry.slot("idle")
    for number in range(20):
        registry.slot(f"h{number}")
    assert registry.seen("waiting") is waiting is not None
    assert registry.seen("idle") is not idle


def test_many_requests_come_out_once_each(make_queue: Make) -> None:
    queue = make_queue()
    pushed = [f"h{number % 17}/{number}" for number in range(500)]
    for path in pushed:
        queue.push(page(path, priority=len(path) % 3))
    assert Counter(urls(queue)) == Counter(pushed)


def disk_queue(
    crawler: Crawler,
    folder: Path,
    state: Any = (),
    queue_cls: Any = PickleLifoDiskQueue,
) -> PolitePriorityQueue:
    return PolitePriorityQueue.from_crawler(
        crawler,
        queue_cls,
        str(folder),
        state,
        start_queue_cls=PickleFifoDiskQueue,
    )


def test_what_was_left_is_there_after_a_clean_close(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    first = crawler()
    queue = disk_queue(first, tmp_path)
    request = page(
        "h/1",
        callback=first.spider.parse,  # type: ignore[union-attr]
        meta={"a": 1},
        cb_kwargs={"b": 2},
        priority=7,
    )
    queue.push(page("done/1"))
    queue.push(request)
    done = queue.pop()
    assert done is not None
    assert done.url == "http://done/1"
    state = queue.close()
    resumed = disk_queue(crawler(), tmp_path, state)
    assert len(resumed) == 1
    found = resumed.pop()
    assert found is not None
    assert found.callback.__name__ == "parse"  # type: ignore[union-attr]
    assert (found.url, found.meta, found.cb_kwargs, found.priority) == (
        request.url,
        {"a": 1},
        {"b": 2},
        7,
    )


def test_what_was_waiting_or_in_flight_is_there_after_a_kill(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    first = crawler()
    queue = disk_queue(first, tmp_path)
    for number in range(6):
        queue.push(page(f"h{number}/"))
    assert first.engine is not None
    assert first.engine._slot is not None
    in_progress = first.engine._slot.inprogress
    for number in range(4):
        request = queue.pop()
        assert request is not None
        if number != 1:
            in_progress.add(request)
    # Killed here: h1 is done, h0, h2 and h3 are on their way.
    resumed = disk_queue(crawler(), as_if_killed(tmp_path))
    assert sorted(urls(resumed)) == ["h0/", "h2/", "h3/", "h4/", "h5/"]


def test_a_request_that_cannot_be_stored_goes_to_the_memory_queue(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    queue = disk_queue(crawler(), tmp_path)
    with pytest.raises(ValueError, match=r"pickle|lambda"):
        queue.push(page("h/1", meta={"lambda": lambda: None}))
    assert len(queue) == 0
    assert queue.pop() is None


@pytest.mark.parametrize("state", [{"h": [0]}, [0, -1]])
def test_requests_of_another_queue_are_refused_with_a_clear_error(
    crawler: Callable[..., Crawler], tmp_path: Path, state: Any
) -> None:
    with pytest.raises(ValueError, match="another SCHEDULER_PRIORITY_QUEUE"):
        disk_queue(crawler(), tmp_path, state)


def test_scrapys_default_queue_refuses_ours(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    queue = disk_queue(crawler(), tmp_path)
    queue.push(page("h/1"))
    state: Any = queue.close()
    with pytest.raises(ValueError, match="incompatible priority queue"):
        DownloaderAwarePriorityQueue.from_crawler(
            crawler(), PickleLifoDiskQueue, str(tmp_path), state
        )


def test_whose_requests_a_job_has_can_be_told_after_a_kill_too(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    folder = tmp_path / "requests.queue"
    folder.mkdir()
    state = folder / "active.json"
    assert not has_requests_of_ours(str(tmp_path))
    queue = disk_queue(crawler(), folder)
    queue.push(page("h/1"))
    assert has_requests_of_ours(str(tmp_path))  # as if it was killed here
    state.write_text(json.dumps(queue.close()), "utf-8")
    assert has_requests_of_ours(str(tmp_path))
    assert not has_requests_of_others(str(tmp_path))
    queue = disk_queue(crawler(), folder, SIGNATURE)
    assert queue.pop() is not None
    state.write_text(json.dumps(queue.close()), "utf-8")
    assert not has_requests_of_ours(str(tmp_path))
    for left, others in (('{"h": [0]}', True), ("[0]", True), ("[", False)):
        state.write_text(left, "utf-8")
        assert has_requests_of_others(str(tmp_path)) == others


def test_a_damaged_database_gives_a_clear_error(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    tmp_path.joinpath("requests.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match=r"requests\.sqlite is not a queue"):
        disk_queue(crawler(), tmp_path)


def test_memory_and_disk_queue_share_the_slots(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    shared = crawler(JOBDIR=str(tmp_path), POLITENESS_START_RATE=0.5)
    scheduler = Scheduler.from_crawler(shared)
    assert shared.spider is not None
    scheduler.open(shared.spider)
    scheduler.enqueue_request(page("h/disk"))
    scheduler.enqueue_request(page("h/memory", meta={"unstorable": lambda: None}))
    assert len(scheduler) == 2
    first = scheduler.next_request()
    assert first is not None
    assert first.url == "http://h/memory"
    assert scheduler.next_request() is None
    assert scheduler.has_pending_requests()
    scheduler.close("finished")


def damage(folder: Path, body: bytes, where: str = "1") -> None:
    with sqlite3.connect(folder / "requests.sqlite") as db:
        db.execute(f"UPDATE requests SET body = ? WHERE {where}", (body,))
    db.close()


@pytest.mark.parametrize("look_first", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        pickle.dumps({"url": "http://h/"})[:-5],
        pickle.dumps(None),
        pickle.dumps({"method": "GET"}),
        pickle.dumps({"url": "no address"}),
        pickle.dumps({"url": "http://h/", "callback": "renamed"}),
        pickle.dumps({"url": "http://h/", "_class": "removed.Request"}),
        b"cremoved\nThing\n.",
    ],
)
def test_a_damaged_request_is_dropped_with_a_warning_and_the_rest_is_used(
    crawler: Callable[..., Crawler],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    look_first: bool,
) -> None:
    queue = disk_queue(crawler(), tmp_path)
    for path in ("a/1", "h/1", "h/2", "h/3", "z/1"):
        queue.push(page(path))
    state = queue.close()
    # The only one of its slot, and one in the middle.
    damage(tmp_path, body, "id IN (1, 3)")
    resumed = disk_queue(crawler(), tmp_path, state)
    assert len(resumed) == 5
    if look_first:
        assert resumed.peek() is not None
    assert sorted(urls(resumed)) == ["h/1", "h/3", "z/1"]
    assert resumed.peek() is None
    assert len(resumed) == 0
    dropped = [r for r in caplog.records if "cannot be restored" in r.message]
    assert [(record.levelname, record.message[0]) for record in dropped] == [
        ("WARNING", "a"),
        ("WARNING", "h"),
    ]
    assert resumed.close() == []
    assert len(disk_queue(crawler(), tmp_path)) == 0


def test_a_thousand_damaged_requests_do_not_hide_the_last(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    queue = disk_queue(crawler(), tmp_path)
    for number in range(1001):
        queue.push(page(f"h/{number}"))
    state = queue.close()
    damage(tmp_path, b"", "id > 1")
    resumed = disk_queue(crawler(), tmp_path, state)
    popped = [resumed.pop() for _ in range(20)]
    assert [request.url for request in popped if request] == ["http://h/0"]
    assert len(resumed) == 0


def test_hosts_that_are_no_longer_exempt_are_held_after_a_resume(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    queue = disk_queue(crawler(POLITENESS_EXEMPT=["h"]), tmp_path)
    for number in range(3):
        queue.push(page(f"h/{number}"))
    state = queue.close()
    settings = {"POLITENESS_EXEMPT": [], "POLITENESS_START_RATE": 0.5}
    resumed = disk_queue(crawler(**settings), tmp_path, state)
    assert len(urls(resumed)) == 1
    assert len(resumed) == 2
    state = resumed.close()
    free = disk_queue(crawler(POLITENESS_EXEMPT=["h"]), tmp_path, state)
    assert len(urls(free)) == 2


@pytest.mark.parametrize(
    ("queue_cls", "first"),
    [
        (FifoDiskQueue, "h/1"),
        (LifoDiskQueue, "h/2"),
        (FifoSQLiteQueue, "h/1"),
        (LifoSQLiteQueue, "h/2"),
    ],
)
def test_the_order_of_scrapys_disk_queues_is_taken_over(
    crawler: Callable[..., Crawler],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    queue_cls: Any,
    first: str,
) -> None:
    queue = disk_queue(crawler(), tmp_path, queue_cls=queue_cls)
    queue.push(page("h/1"))
    queue.push(page("h/2"))
    assert urls(queue)[0] == first
    assert "is not used" not in caplog.text


def test_a_disk_queue_of_another_kind_is_not_used_and_that_is_said(
    crawler: Callable[..., Crawler],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Own:
        pass

    queue = disk_queue(crawler(), tmp_path, queue_cls=Own)
    queue.push(page("h/1"))
    queue.push(page("h/2"))
    assert urls(queue) == ["h/2", "h/1"]
    [warning] = [r.message for r in caplog.records if "is not used" in r.message]
    assert __name__ in warning
    assert "Own is not used" in warning
    assert "last in, first out" in warning


def test_the_file_of_a_crawl_that_is_over_is_small(
    crawler: Callable[..., Crawler], tmp_path: Path
) -> None:
    queue = disk_queue(crawler(), tmp_path)
    for number in range(3000):
        queue.push(page(f"h{number % 50}/{number}", meta={"text": "x" * 300}))
    assert len(urls(queue)) == 3000
    queue.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000
