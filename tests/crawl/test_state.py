"""What outlives a run: the file, what may go wrong with it, what a later run knows."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from scrapy import Request

from scrapy_politeness import PolitenessExtension
from scrapy_politeness.core.governor.control_law import Bounds
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.storage.records import Records
from scrapy_politeness.storage.state_file import Entry, StateFile
from tests.support.crawl import REACTORS, Crawl, Reactor, crawl, start_crawl
from tests.support.lag import METER
from tests.support.settings import NO_ROBOTS
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.http import Response

    from tests.support.site import Arrival, Site

NOW = 1_000_000_000.0
DAY = 86400.0
FAST = Learned(9.0, None, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def save(
    path: Path,
    pauses: dict[str, float] | None = None,
    learned: dict[str, Entry | None] | None = None,
) -> None:
    with StateFile(path) as state:
        state.write(pauses or {}, learned or {})


def pauses(path: Path) -> dict[str, float]:
    with StateFile(path) as state:
        return state.pauses(NOW)


def learned(path: Path, slot_key: str) -> Entry | None:
    with StateFile(path) as state:
        return state.learned(slot_key)


def execute(path: Path, statement: str, *rows: tuple[object, ...]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(statement, rows) if rows else db.execute(statement)


@contextmanager
def recording(path: Path) -> Iterator[Records]:
    """Nothing is saved on time here, only at once and in the end."""
    records = Records(StateFile(path), later=Mock())
    yield records
    records.close()
    finish(records)


def finish(records: Records) -> None:
    records._writer.shutdown(wait=True)


def slot_that_knows(key: str, knows: Learned) -> Slot:
    slot = Slot(key, Bounds(), spacing=0.0, concurrency=8)
    slot.recall(knows, 0.0)
    return slot


def test_pauses_are_there_until_they_are_over(path: Path) -> None:
    save(path, {"a": NOW + 5, "b": NOW - 1})
    save(path, {"a": NOW + 60})
    assert pauses(path) == {"a": 60.0}
    with StateFile(path) as state:
        state.tidy(NOW + 61)
        assert state.pauses(NOW) == {}


@pytest.mark.parametrize(
    "slot_key", ["example.org", "ключ 7", "\ud800", "a\0b", "x" * 5000]
)
@pytest.mark.parametrize("knows", [FAST, Learned(None, None, 3), Learned(0.2, 0.1, 1)])
def test_what_was_learned_comes_back(path: Path, slot_key: str, knows: Learned) -> None:
    assert learned(path, slot_key) is None
    save(path, learned={slot_key: Entry(knows, NOW)})
    assert learned(path, slot_key) == Entry(knows, NOW)
    save(path, learned={slot_key: None})
    assert learned(path, slot_key) is None


def test_more_than_anybody_can_mean_is_cut_and_not_taken_for_damage(path: Path) -> None:
    save(path, learned={"a": Entry(Learned(1e9, float("inf"), 10**30), NOW)})
    assert learned(path, "a") == Entry(Learned(1e6, 1e6, 10**6), NOW)


def test_damaged_pauses_are_dropped_with_one_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, {"a": NOW + 60})
    damage = (("b", "soon"), ("c", None), ("d", b"x"), ("e", float("inf")), (b"f", NOW))
    execute(path, "INSERT INTO pauses VALUES (?, ?)", *damage)
    with StateFile(path) as state:
        assert state.pauses(NOW) == {"a": 60.0}
        state.tidy(NOW)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    assert pauses(path) == {"a": 60.0}
    assert not caplog.records


@pytest.mark.parametrize(
    "damage",
    [
        ("fast", 5.0, None, NOW),
        (float("inf"), 5.0, None, NOW),
        (float("nan"), 5.0, None, NOW),
        (1e9, 5.0, None, NOW),
        (-1.0, 5.0, None, NOW),
        (None, None, None, NOW),
        (9.0, -1.0, None, NOW),
        (9.0, b"\xff", None, NOW),
        (9.0, 5.0, "{", NOW),
        (9.0, 5.0, 0, NOW),
        (9.0, 5.0, None, None),
        (9.0, 5.0, None, "yesterday"),
        (9.0, 5.0, None, float("-inf")),
    ],
)
def test_a_damaged_entry_is_dropped_with_one_warning_and_the_rest_is_used(
    path: Path, caplog: pytest.LogCaptureFixture, damage: tuple[object, ...]
) -> None:
    save(path, learned={"sound": Entry(FAST, time.time())})
    rows = (("a", *damage), ("b", *damage))
    execute(path, "INSERT INTO learned VALUES (?, ?, ?, ?, ?)", *rows)
    with recording(path) as records:
        assert records.recall("a", 1.0) is None
        assert records.recall("b", 1.0) is None
        assert records.recall("sound", 1.0) is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert learned(path, "a") is None
    assert learned(path, "b") is None


@pytest.mark.parametrize("damage", ["head", "schema", "page", "all"])
def test_a_damaged_file_is_set_aside_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    entries: dict[str, Entry | None] = {
        f"host{n}": Entry(FAST, NOW) for n in range(500)
    }
    save(path, dict.fromkeys(entries, NOW + 60), entries)
    content = bytearray(path.read_bytes())
    place = {
        "head": slice(0, 16),
        "schema": slice(100, 4096),
        "page": slice(4096, 4200),
        "all": slice(None),
    }[damage]
    content[place] = b"\xff" * len(content[place])
    path.write_bytes(content)
    assert pauses(path) == {}
    assert "state.sqlite is damaged" in caplog.text
    assert path.with_name("state.sqlite.damaged").read_bytes() == content
    save(path, {"a": NOW + 60})
    assert pauses(path) == {"a": 60.0}


def test_a_table_with_other_columns_is_damage(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path)
    execute(path, "ALTER TABLE learned DROP COLUMN spread")
    assert learned(path, "a") is None
    assert "state.sqlite is damaged" in caplog.text


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    save(path, {"a": NOW + 60})
    execute(path, "PRAGMA user_version = 3")
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match="format 3 is that of a newer scrapy-politeness"
    ):
        StateFile(path)
    assert path.read_bytes() == before


def test_of_a_file_of_format_1_the_pauses_are_kept_and_rates_learned_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, {"a": NOW + 60})
    for statement in (
        "DROP TABLE learned",
        "CREATE TABLE learned (slot TEXT PRIMARY KEY, ceiling REAL, burst REAL, "
        "concurrency INTEGER, learned_at REAL) WITHOUT ROWID",
        f"INSERT INTO learned VALUES ('a', 0.5, 5.0, 8, {NOW})",
        "PRAGMA user_version = 1",
    ):
        execute(path, statement)
    assert pauses(path) == {"a": 60.0}
    assert learned(path, "a") is None
    save(path, learned={"a": Entry(FAST, NOW)})
    assert learned(path, "a") == Entry(FAST, NOW)
    assert not caplog.records


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    execute(path, "CREATE TABLE thesis (chapter TEXT)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another program"):
        StateFile(path)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_opened_gives_a_clear_error(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ValueError, match=r"state\.sqlite cannot be opened"):
        StateFile(path)
    with pytest.raises(ValueError, match="cannot be opened"):
        StateFile(Path("/dev/null/state.sqlite"))


def test_an_old_entry_is_trusted_less(path: Path) -> None:
    now = time.time()
    ages = {"new": 0.0, "day": DAY, "old": 1e4 * DAY, "future": -1e4 * DAY}
    save(path, learned={key: Entry(FAST, now - age) for key, age in ages.items()})
    with recording(path) as records:
        found = {key: records.recall(key, start_rate=1.0) for key in ages}
    ceilings = {key: entry and entry.ceiling for key, entry in found.items()}
    expected = {"new": 9.0, "day": 5.0, "old": 1.0, "future": 9.0}
    assert ceilings == pytest.approx(expected, rel=0.01)


def test_what_is_not_yet_saved_is_known_all_the_same(path: Path) -> None:
    with recording(path) as records:
        records.changed(slot_that_knows("a", FAST))
        assert records.recall("a", 1.0) is not None
        records.paused("b", NOW)  # which saves everything
        assert records.recall("a", 1.0) is not None
        records.forget("a")
        assert records.recall("a", 1.0) is None
    assert learned(path, "a") is None


def test_a_locked_file_holds_up_nobody_and_is_written_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, learned={"known": Entry(FAST, time.time())})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with recording(path) as records:
            began_at = time.monotonic()
            for number in range(100):
                records.changed(slot_that_knows(f"host{number}", FAST))
                records.paused(f"host{number}", NOW + 60)
            assert records.recall("known", 1.0) is not None
            took = time.monotonic() - began_at
            assert took < 0.5 + METER.lost(began_at)
            while not caplog.records:
                time.sleep(0.01)
            other.execute("ROLLBACK")
    assert ["cannot be written now" in r.message for r in caplog.records] == [True]
    assert len(pauses(path)) == 100
    assert learned(path, "host99") is not None


HOST = "127.0.0.1"


def brisk(state: Path, **more: Any) -> dict[str, Any]:
    return {
        **NO_ROBOTS,
        "POLITENESS_STATE": str(state),
        "POLITENESS_START_RATE": 10,
        "POLITENESS_BACKOFF_BASE": 0.5,
        **more,
    }


def climbing(state: Path, start: float) -> dict[str, Any]:
    """Of a host that stands twice the start rate, that is known after two seconds."""
    return brisk(
        state,
        POLITENESS_START_RATE=start,
        POLITENESS_MAX_RATE=2 * start,
        POLITENESS_RAISE_AFTER=2,
    )


def seconds_for(pages: int, arrivals: list[Arrival]) -> float:
    return arrivals[pages - 1].at - arrivals[0].at


def test_a_run_starts_near_the_limit_that_one_before_had_found_when_it_was_killed(
    site: Callable[..., Site], path: Path
) -> None:
    server = site(60, limit="10/second")
    job: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": brisk(
            path,
            POLITENESS_START_RATE=1,
            POLITENESS_RAISE_AFTER=2,
            POLITENESS_MAX_RATE=100,
        ),
    }
    with start_crawl(**job) as running:
        running.wait_for_log("because of 429")
        server.wait_for_arrivals(len(server.arrivals) + 3)
        running.kill()
        running.wait()
    before = server.arrivals
    second = crawl(**{**job, "urls": server.page_urls()[:15]})
    after = server.arrivals[len(before) :]
    assert len(second.items) == 15
    assert second.stats["politeness/recalled"] == 1
    assert f"Keeping learned rates in {path}" in second.log
    assert seconds_for(10, before) > 3
    assert seconds_for(10, after) < 2.5 + server.lost
    # Where a killed run has just met the limit, it does not know it exactly yet.
    assert sum(arrival.status == 429 for arrival in after) <= 4


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_all_is_saved_when_the_crawl_ends(
    site: Callable[..., Site], path: Path, reactor: Reactor
) -> None:
    server = site(15)
    settings = climbing(path, 5)
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert len(result.items) == 15
    entry = learned(path, HOST)
    assert entry is not None
    assert entry.learned == Learned(10.0, None, None)
    assert not path.with_name("state.sqlite-wal").exists()


def test_two_processes_may_use_one_file(site: Callable[..., Site], path: Path) -> None:
    hosts = [f"127.0.0.{number}" for number in range(1, 6)]
    server = site(15, hosts=hosts)
    urls = [url for host in hosts for url in server.page_urls(host)]
    job: dict[str, Any] = {"urls": urls, "settings": climbing(path, 5)}
    with start_crawl(**job) as one, start_crawl(**job) as other:
        results: list[Crawl] = [one.wait(), other.wait()]
    for result in results:
        assert len(result.items) == len(urls)
        assert "Traceback" not in result.log
        assert "The state file" not in result.log
    with StateFile(path) as state:
        assert all(state.learned(host) for host in hosts)


def test_a_crawl_goes_on_without_what_a_damaged_file_knew(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    tmp_path.joinpath("politeness.sqlite").write_bytes(b"garbage" * 500)
    server = site(3)
    settings = {"JOBDIR": str(tmp_path), "POLITENESS_START_RATE": 10}
    result = crawl(urls=server.page_urls(), settings=settings)
    assert len(result.items) == 3
    assert "politeness.sqlite is damaged" in result.log


def test_a_crawl_with_a_state_file_that_cannot_be_used_does_not_start() -> None:
    settings = {"POLITENESS_STATE": "/dev/null/state.sqlite"}
    result = crawl(urls=["http://127.0.0.1:9/"], settings=settings)
    assert result.returncode != 0
    assert "POLITENESS_STATE='/dev/null/state.sqlite': must lead to" in result.log
    assert "Spider opened" not in result.log


def test_what_is_recalled_keeps_to_the_limits_of_user_and_host(
    site: Callable[..., Site], path: Path
) -> None:
    fastest = Entry(Learned(1000.0, 0.1, None), time.time())
    slow = Entry(Learned(1.0, 0.1, None), time.time())
    known: dict[str, Entry | None] = {
        "127.0.0.1": fastest,
        "127.0.0.2": fastest,
        "127.0.0.3": fastest,
        "127.0.0.4": slow,
        "127.0.0.5": slow,
    }
    save(path, learned=known)
    settings = brisk(
        path,
        POLITENESS_ROBOTS=True,
        POLITENESS_LIMITS={
            "127.0.0.2": {"max_rate": 4},
            "127.0.0.4": {"adaptive": False},
        },
        DOWNLOAD_SLOTS={"127.0.0.3": {"delay": 0.3}},
    )
    told = site(3, robots="User-agent: *\nCrawl-delay: 0.4")
    server = site(3, hosts=list(known)[1:])
    urls = [url for host in list(known)[1:] for url in server.page_urls(host)]
    result = crawl(urls=told.page_urls() + urls, settings=settings)
    assert result.stats["politeness/recalled"] == 4
    for host, least, most in (
        ("127.0.0.1", 0.4, 0.8),
        ("127.0.0.2", 0.25, 0.5),
        ("127.0.0.3", 0.3, 0.6),
        ("127.0.0.4", 0.1, 0.3),
        ("127.0.0.5", 1.0, 1.5),
    ):
        arrivals = [
            arrival
            for arrival in told.arrivals + server.arrivals
            if arrival.host == host and arrival.path != "/robots.txt"
        ]
        seconds = seconds_for(3, arrivals)
        assert 2 * least - server.jitter < seconds < 2 * most + server.lost


class Chain(Pages):
    """One after the other; calls methods of the extension before the last."""

    name = "chain"
    calls: tuple[tuple[Any, ...], ...] = ()

    async def start(self) -> Any:
        yield self.visit(0)

    def visit(self, number: int) -> Request:
        return Request(self.urls[number], cb_kwargs={"number": number})

    def parse(self, response: Response, number: int = 0) -> Any:
        yield {"url": response.url}
        left = len(self.urls) - number - 1
        if left == 1:
            politeness = self.crawler.get_extension(PolitenessExtension)
            for name, *arguments in self.calls:
                getattr(politeness, name)(*arguments)
        if left:
            yield self.visit(number + 1)


def test_a_reset_is_for_good_and_a_rate_that_was_set_is_not(
    site: Callable[..., Site], path: Path
) -> None:
    hosts = [HOST, "127.0.0.2"]
    server = site(15, hosts=hosts)
    urls = server.page_urls(hosts[1]) + server.page_urls(HOST)
    calls = (("reset", HOST), ("set_rate", "127.0.0.2", 7))
    result = crawl(Chain, urls=urls, settings=climbing(path, 5), calls=calls)
    assert len(result.items) == 30
    assert learned(path, HOST) is None
    kept = learned(path, "127.0.0.2")
    assert kept is not None
    assert kept.learned.ceiling == 10


def test_a_slot_that_was_forgotten_is_recalled_when_it_returns(
    site: Callable[..., Site], path: Path
) -> None:
    hosts = [HOST, "127.0.0.2", "127.0.0.3"]
    server = site(10, hosts=hosts, latency=0.25)
    urls = server.page_urls()[1:]
    urls += [server.page_urls(host)[0] for host in (*hosts[1:], HOST)]
    settings = {**climbing(path, 1), "POLITENESS_MAX_SLOTS": 1}
    result = crawl(Chain, urls=urls, settings=settings)
    assert len(result.items) == 12
    assert result.stats["politeness/recalled"] == 1
