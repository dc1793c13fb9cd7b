"""Where requests wait that are not where new ones are: in memory and on disk."""

from __future__ import annotations

import math
import random
import sqlite3
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from scrapy.squeues import (
    FifoMemoryQueue,
    LifoMemoryQueue,
    PickleFifoDiskQueue,
    PickleLifoDiskQueue,
)

from scrapy_politeness.storage.disk_backlog import DiskBacklog
from scrapy_politeness.storage.marks import FRONT, USUAL, Placement, Where
from scrapy_politeness.storage.memory_backlog import MemoryBacklog
from tests.support.ready import as_if_killed, page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from scrapy.crawler import Crawler

    from scrapy_politeness.storage.backlog import OwnBacklog

    Make: TypeAlias = Callable[..., OwnBacklog]
    Reopen: TypeAlias = Callable[..., DiskBacklog]

BEHIND = Placement(Where.BEHIND, 60.0)
LAST = Placement(Where.LAST, 60.0)
HELD = partial(Placement, Where.HELD)

ALL_ORDERS = pytest.mark.parametrize("fifo", [False, True])


@pytest.fixture(params=["memory", "disk"])
def make(
    request: pytest.FixtureRequest, crawler: Callable[..., Crawler], tmp_path: Path
) -> Make:
    def make(*, fifo: bool = False) -> OwnBacklog:
        if request.param == "memory":
            queue = FifoMemoryQueue if fifo else LifoMemoryQueue
            return MemoryBacklog(crawler(), queue, FifoMemoryQueue)
        disk = PickleFifoDiskQueue if fifo else PickleLifoDiskQueue
        return DiskBacklog(
            str(tmp_path), crawler(), disk, PickleFifoDiskQueue, lambda: ()
        )

    return make


def push(
    backlog: OwnBacklog,
    path: str,
    placement: Placement = USUAL,
    now: float = 0.0,
    priority: int = 0,
) -> None:
    slot = path.partition("/")[0]
    backlog.push(slot, page(path, priority=priority), placement, now)


def pops(backlog: OwnBacklog, slot_key: str = "h") -> str:
    """All that may be popped, peeked at before."""
    paths = []
    while slot_key in backlog.ready:
        seen, request = backlog.peek(slot_key), backlog.pop(slot_key)
        assert request is not None
        assert seen is not None
        assert seen.url == request.url
        paths.append(request.url.rpartition("/")[2])
    return " ".join(paths)


@ALL_ORDERS
@pytest.mark.parametrize(
    ("placements", "order"),
    [
        ({"a": FRONT}, "a USUAL"),
        ({"a": FRONT, "b": FRONT}, "a b USUAL"),
        ({"a": BEHIND}, "USUAL a"),
        ({"a": BEHIND, "b": BEHIND}, "USUAL a b"),
        ({"a": LAST, "b": BEHIND, "c": FRONT}, "c USUAL b a"),
        ({"a": HELD(5)}, "USUAL"),
        ({"a": HELD(5), "b": HELD(1), "c": BEHIND}, "USUAL c"),
    ],
)
def test_where_a_request_waits_among_others_of_its_priority(
    make: Make, placements: dict[str, Placement], order: str, fifo: bool
) -> None:
    backlog = make(fifo=fifo)
    push(backlog, "h/1")
    for name, placement in placements.items():
        push(backlog, f"h/{name}", placement)
    push(backlog, "h/2")
    usual = "1 2" if fifo else "2 1"
    assert pops(backlog) == order.replace("USUAL", usual)


@pytest.mark.parametrize(
    ("placement", "order"),
    [
        (USUAL, "high x middle low"),
        (FRONT, "high x middle low"),
        (BEHIND, "high middle x low"),
        # Then something else is sure to be asked for first.
        (LAST, "high middle low x"),
    ],
)
def test_priorities_keep_their_meaning(
    make: Make, placement: Placement, order: str
) -> None:
    backlog = make()
    for name, priority in {"low": -1, "middle": 0, "high": 7}.items():
        push(backlog, f"h/{name}", priority=priority)
    push(backlog, "h/x", placement)
    assert pops(backlog) == order


def test_what_is_behind_comes_after_start_requests_too(make: Make) -> None:
    backlog = make()
    start = page("h/start", meta={"is_start_request": True})
    push(backlog, "h/refused", BEHIND)
    backlog.push("h", start, USUAL, 0.0)
    assert pops(backlog) == "start refused"


@ALL_ORDERS
@pytest.mark.parametrize("placement", [BEHIND, LAST, HELD(60.0)])
def test_when_its_time_has_come_it_goes_to_the_front(
    make: Make, placement: Placement, fifo: bool
) -> None:
    backlog = make(fifo=fifo)
    push(backlog, "h/x", placement, now=100.0)
    push(backlog, "h/high", priority=1)
    push(backlog, "h/1")
    assert backlog.next_release == pytest.approx(160.0)
    backlog.release(159.9)
    assert backlog.next_release == pytest.approx(160.0)
    backlog.release(160.1)
    assert backlog.next_release == math.inf
    push(backlog, "h/2")
    assert pops(backlog) == ("high x 1 2" if fifo else "high x 2 1")


def test_what_is_held_counts_but_is_not_there(make: Make) -> None:
    backlog = make()
    push(backlog, "h/1", HELD(5.0))
    push(backlog, "other/1")
    assert (len(backlog), backlog.count("h")) == (2, 1)
    assert "h" not in backlog.ready
    assert list(backlog.ready) == ["other"]
    assert list(backlog.release(4.9)) == []
    assert list(backlog.release(5.1)) == ["h"]
    assert pops(backlog) == "1"
    assert (len(backlog), backlog.count("h")) == (1, 0)


def test_those_held_come_in_the_order_of_their_times(make: Make) -> None:
    backlog = make()
    delays = random.Random(1).sample(range(5000), 5000)
    for delay in delays:
        push(backlog, f"h/{delay}", HELD(delay))
    assert len(backlog) == 5000
    backlog.release(99.5)
    assert pops(backlog) == " ".join(map(str, range(100)))
    while backlog.next_release < 4999:
        backlog.release(5000.0)
    assert pops(backlog) == " ".join(map(str, range(100, 5000)))
    assert len(backlog) == 0


def test_what_was_popped_is_not_released_later(make: Make) -> None:
    backlog = make()
    push(backlog, "h/x", BEHIND)
    assert pops(backlog) == "x"
    push(backlog, "h/1")
    assert list(backlog.release(61.0)) == []
    assert backlog.next_release == math.inf
    assert pops(backlog) == "1"


def test_with_nothing_else_to_do_some_go_early(make: Make) -> None:
    backlog = make()
    push(backlog, "h/never", HELD(500.0))
    push(backlog, "h/2", HELD(300.0, early=True))
    push(backlog, "h/1", HELD(200.0, early=True))
    assert not backlog.ready
    assert list(backlog.release_early()) == ["h"]
    assert backlog.ready
    assert pops(backlog) == "1 2"
    assert list(backlog.release_early()) == []
    assert backlog.next_release == pytest.approx(500.0)


@pytest.fixture
def reopen(crawler: Callable[..., Crawler], tmp_path: Path) -> Reopen:
    """As a later run does it."""

    def reopen(folder: Path = tmp_path) -> DiskBacklog:
        queues = (PickleLifoDiskQueue, PickleFifoDiskQueue)
        return DiskBacklog(str(folder), crawler(), *queues, lambda: ())

    return reopen


@pytest.mark.parametrize("is_killed", [True, False])
def test_places_last_from_run_to_run(
    reopen: Reopen, tmp_path: Path, is_killed: bool
) -> None:
    first = reopen()
    now = time.monotonic()
    for name, placement in {"held": HELD(50.0), "last": LAST, "front": FRONT}.items():
        push(first, f"h/{name}", placement, now)
    push(first, "h/1", now=now)
    if is_killed:
        second = reopen(as_if_killed(tmp_path))
    else:
        first.close()
        second = reopen()
    assert (len(second), second.count("h")) == (4, 4)
    assert 40 < second.next_release - time.monotonic() <= 50
    assert pops(second) == "front 1 last"
    assert list(second.release(now + 51.0)) == ["h"]
    assert pops(second) == "held"


@pytest.mark.parametrize(
    ("clock_moves", "left"), [(0, 50), (-86400, 50), (-10, 50), (20, 30), (86400, 0)]
)
def test_a_clock_that_was_set_makes_no_wait_longer(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch, clock_moves: float, left: float
) -> None:
    first = reopen()
    push(first, "h/1", HELD(50.0), time.monotonic())
    first.close()
    wall_now = time.time() + clock_moves
    monkeypatch.setattr(time, "time", lambda: wall_now)
    second = reopen()
    wait = max(0.0, second.next_release - time.monotonic())
    assert wait == pytest.approx(left, abs=2.0)


OLD_SCHEMA = """
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    slot TEXT NOT NULL,
    rank INTEGER NOT NULL,
    place INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
);
CREATE INDEX waiting ON requests (slot, rank, place) WHERE NOT taken;
"""


def test_the_database_of_an_earlier_version_is_used(
    reopen: Reopen, tmp_path: Path
) -> None:
    new = reopen()
    for name in "123":
        push(new, f"h/{name}")
    new.close()
    file = tmp_path / "requests.sqlite"
    with sqlite3.connect(file) as db:
        rows = db.execute("SELECT slot, rank, place, body FROM requests").fetchall()
        db.execute("DROP TABLE requests")
        db.executescript(OLD_SCHEMA)
        db.executemany(
            "INSERT INTO requests (slot, rank, place, body) VALUES (?, ?, ?, ?)", rows
        )
    db.close()
    backlog = reopen()
    push(backlog, "h/4", HELD(5.0))
    push(backlog, "h/5", FRONT)
    assert pops(backlog) == "5 3 2 1"
    assert list(backlog.release(6.0)) == ["h"]
    assert pops(backlog) == "4"


@pytest.mark.parametrize(
    "damage",
    [
        "held = 'x'",
        "ends = NULL",
        "ends = 'tomorrow'",
        "delay = NULL",
        "delay = x'00'",
        "ends = 9e999, delay = 9e999",
        "band = 'x', last = 'y', early = 'z'",
    ],
)
def test_a_damaged_place_costs_no_request(
    reopen: Reopen, tmp_path: Path, damage: str
) -> None:
    first = reopen()
    push(first, "h/1", HELD(1e6), time.monotonic())
    first.close()
    with sqlite3.connect(tmp_path / "requests.sqlite") as db:
        db.execute(f"UPDATE requests SET {damage}")
    db.close()
    second = reopen()
    assert "h" in second.ready
    assert pops(second) == "1"
    assert len(second) == 0


def test_what_is_held_and_lost_is_not_waited_for_for_ever(
    reopen: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    backlog = reopen()
    push(backlog, "h/1", HELD(5.0))
    push(backlog, "h/2")
    # Nobody else can write there meanwhile.
    backlog._db.execute("DELETE FROM requests WHERE held")
    assert len(backlog) == 2
    backlog.release(6.0)
    assert "Dropped 1 request: damaged" in caplog.text
    assert pops(backlog) == "2"
    assert len(backlog) == 0


def test_pages_that_fail_are_not_worth_waiting_for(make: Make) -> None:
    backlog = make()
    push(backlog, "h/1", HELD(5.0, failing=True))
    push(backlog, "h/2", Placement(Where.LAST, 60.0, failing=True))
    push(backlog, "h/3", BEHIND)
    backlog.release(6.0)
    assert backlog.has_other("h")
    assert not backlog.has_other("elsewhere")
    first, second = backlog.pop("h"), backlog.pop("h")
    assert first is not None
    assert second is not None
    assert (first.url, second.url) == ("http://h/1", "http://h/3")
    assert "h" in backlog.ready
    assert not backlog.has_other("h")
