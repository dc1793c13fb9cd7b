"""What is kept in a job directory, and who may use it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.core.scheduler import Scheduler
from scrapy.dupefilters import RFPDupeFilter

from scrapy_politeness.components.dupefilter import PoliteDupeFilter
from tests.support.ready import as_if_killed, page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy import Request
    from scrapy.crawler import Crawler

    Open = Callable[..., Scheduler]

HEX = [f"{number:040x}" for number in (7, 8, 9)]


@pytest.fixture
def job(crawler: Callable[..., Crawler], tmp_path: Path) -> Open:
    """Opens the scheduler of one run."""

    def open_job(folder: Path = tmp_path / "job", **settings: Any) -> Scheduler:
        run = crawler(JOBDIR=str(folder), **settings)
        scheduler = Scheduler.from_crawler(run)
        assert run.spider is not None
        scheduler.open(run.spider)
        return scheduler

    return open_job


def enqueued(scheduler: Scheduler, *paths: str, **options: Any) -> list[bool]:
    return [scheduler.enqueue_request(page(path, **options)) for path in paths]


def test_what_was_seen_is_seen_in_later_runs(job: Open) -> None:
    first = job()
    assert isinstance(first.df, PoliteDupeFilter)
    assert enqueued(first, "h/1", "h/2", "h/1") == [True, True, False]
    assert enqueued(first, "h/2", dont_filter=True) == [True]
    first.close("finished")
    second = job()
    assert len(second) == 3
    assert enqueued(second, "h/1", "h/2", "h/3") == [False, False, True]


def test_after_a_kill_each_request_is_seen_if_it_waits(
    job: Open, tmp_path: Path
) -> None:
    first = job()
    enqueued(first, "h/1", "h/2")
    # Killed after the filter has let it pass, and before the queue has it.
    assert not first.df.request_seen(page("h/3"))
    second = job(as_if_killed(tmp_path / "job"))
    assert len(second) == 2
    assert enqueued(second, "h/1", "h/2", "h/3") == [False, False, True]


def test_what_waits_in_memory_is_forgotten_by_a_kill(job: Open, tmp_path: Path) -> None:
    first = job()
    unstorable = {"meta": {"unstorable": lambda: None}}
    assert enqueued(first, "h/1", "h/1", **unstorable) == [True, False]
    assert enqueued(first, "h/2") == [True]
    killed = job(as_if_killed(tmp_path / "job"))
    assert enqueued(killed, "h/1", "h/2") == [True, False]
    first.close("shutdown")
    assert enqueued(job(), "h/1", "h/2") == [False, False]


def test_a_request_that_is_done_is_seen_and_not_repeated(
    job: Open, tmp_path: Path
) -> None:
    first = job()
    enqueued(first, "h/1", "g/1")
    assert first.next_request() is not None  # and it is done at once
    first.next_request()
    second = job(as_if_killed(tmp_path / "job"))
    assert len(second) == 1
    assert enqueued(second, "h/1", "g/1") == [False, False]


TEXT = "\n".join(HEX).encode()
BINARY = b"".join(b"\0\x14" + bytes.fromhex(line) for line in HEX)


@pytest.mark.parametrize(
    ("content", "known"),
    [
        (TEXT + b"\n", 3),
        (TEXT[:-1], 2),
        (TEXT + b"\r\nno hex\n\n", 3),
        (BINARY, 3),
        (BINARY[:-1], 2),
        (BINARY + b"\0", 3),
        (b"", 0),
    ],
)
def test_what_scrapys_own_filter_has_left_is_read(
    job: Open, tmp_path: Path, content: bytes, known: int
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "requests.seen").write_bytes(content)
    scheduler = job()
    numbers = iter(map(bytes.fromhex, HEX))
    scheduler.df.fingerprinter = Fingerprints(numbers)  # type: ignore[attr-defined]
    assert enqueued(scheduler, "h/1", "h/2", "h/3").count(False) == known
    assert (folder / "requests.seen").read_bytes() == content


class Fingerprints:
    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers

    def fingerprint(self, request: Request) -> bytes:
        found: bytes = next(self._numbers)
        return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, PoliteDupeFilter),
        ({"POLITENESS_DUPEFILTER": False}, RFPDupeFilter),
        ({"JOBDIR": ""}, RFPDupeFilter),
        ({"DUPEFILTER_CLASS": "tests.unit.test_job.Own"}, "Own"),
        (
            {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"},
            RFPDupeFilter,
        ),
    ],
)
def test_whose_filter_is_used(
    crawler: Callable[..., Crawler],
    tmp_path: Path,
    settings: dict[str, Any],
    expected: Any,
) -> None:
    run = crawler(**{"JOBDIR": str(tmp_path), **settings})
    scheduler = Scheduler.from_crawler(run)
    assert type(scheduler.df) is (Own if expected == "Own" else expected)
    scheduler.df.close("")


class Own(RFPDupeFilter):
    pass


def test_a_job_that_changes_its_filter_is_warned(
    job: Open, caplog: pytest.LogCaptureFixture
) -> None:
    first = job()
    enqueued(first, "h/1")
    first.close("shutdown")
    second = job(POLITENESS_DUPEFILTER=False)
    second.close("shutdown")
    assert "may be fetched again" in caplog.text


def test_a_job_directory_is_for_one_crawl_at_a_time(job: Open) -> None:
    first = job()
    enqueued(first, "h/1")
    with pytest.raises(ValueError, match=r"JOBDIR='.*/job': another crawl is using"):
        job()
    enqueued(first, "h/2")
    first.close("shutdown")
    assert len(job()) == 2


@pytest.mark.parametrize("how", ["deleted", "truncated", "emptied", "folder"])
def test_requests_that_are_gone_after_a_clean_stop_are_an_error(
    job: Open, tmp_path: Path, how: str
) -> None:
    first = job()
    enqueued(first, "h/1", "h/2")
    first.close("shutdown")
    file = tmp_path / "job" / "requests.queue" / "requests.sqlite"
    if how == "deleted":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(b"")
    elif how == "emptied":
        with closing(sqlite3.connect(file, isolation_level=None)) as db:
            db.execute("DELETE FROM requests")
    else:  # where there is nothing, a crawl may begin
        shutil.rmtree(file.parent.parent)
        assert len(job()) == 0
        return
    for _ in range(2):
        with pytest.raises(ValueError, match=r"JOBDIR=.*deleted or emptied\. Restore"):
            job()


def test_a_run_that_was_killed_with_nothing_left_is_no_error(
    job: Open, tmp_path: Path
) -> None:
    first = job()
    enqueued(first, "h/1")
    first.close("shutdown")
    second = job()
    second.next_request()
    second.next_request()  # the first one is done
    third = job(as_if_killed(tmp_path / "job"))
    assert len(third) == 0
