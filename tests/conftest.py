from __future__ import annotations

import fcntl
import gc
import os
import pickle
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from tests.support.lag import METER
from tests.support.ready import ready_crawlers
from tests.support.redis_server import RedisServer
from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.terminal import TerminalReporter
    from scrapy.crawler import Crawler


_STARTED_AT = time.monotonic()

Made = TypeVar("Made")


def pytest_xdist_auto_num_workers() -> int:
    """Most tests wait for a clock most of the time; but each worker collects all, for
    five seconds of CPU time."""
    return min(5 * (os.cpu_count() or 1), 16)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--crawl-reactor",
        choices=("asyncio", "select", "none", "uvloop"),
        help="run crawls under this one alone",
    )
    parser.addoption("--cell", type=Path, help="a file for the result")


def pytest_configure(config: pytest.Config) -> None:
    METER.start()
    chosen = config.getoption("--crawl-reactor")
    if chosen:  # before any test is imported that reads it
        os.environ["CRAWL_REACTOR"] = chosen


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    from tests.support.crawl import scrapy_runs_without_reactor

    chosen = config.getoption("--crawl-reactor")
    if chosen == "none" and not scrapy_runs_without_reactor():
        for item in items:
            item.add_marker(pytest.mark.skip("needs Scrapy 2.15"))


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests, which no collection of garbage has to go through


def pytest_terminal_summary(
    terminalreporter: TerminalReporter, config: pytest.Config
) -> None:
    path = config.getoption("--cell")
    if path is None:
        return
    from tests.support.matrix import Cell

    stats = terminalreporter.stats
    wrong = stats.get("failed", []) + stats.get("error", [])
    Cell(
        reactor=os.environ.get("CRAWL_REACTOR", "asyncio"),
        whole_suite=config.getoption("-m") != "everywhere",
        passed=len(stats.get("passed", [])),
        failed=[report.nodeid for report in wrong],
        skipped=len(stats.get("skipped", [])),
        seconds=time.monotonic() - _STARTED_AT,
    ).write(path)


class Once(Protocol):
    def __call__(self, make: Callable[[Path], Made]) -> Made: ...


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Makes what is needed by several tests, and is slow to make, once for all workers.
    What is made must survive pickling."""
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = common.parent

    def make_once(make: Callable[[Path], Made]) -> Made:
        folder = common / f"once-{make.__module__}.{make.__name__}"
        folder.mkdir(exist_ok=True)
        kept = folder / "made.pickle"
        with (folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_bytes(pickle.dumps(make(folder)))
        made: Made = pickle.loads(kept.read_bytes())
        return made

    return make_once


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    """Opens sites, which are closed when the test ends."""
    with ExitStack() as stack:

        def open_site(*args: Any, **options: Any) -> Site:
            return stack.enter_context(Site(*args, **options))

        yield open_site


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def crawler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Crawler]]:
    """Makes crawlers that are ready to crawl, and do not. Databases that they leave
    open are closed, as at the end of a process."""
    connect = sqlite3.connect
    with ExitStack() as stack:

        def connect_for_now(*args: Any, **options: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*args, **options)
            # Those for several threads may be in use.
            if options.get("check_same_thread", True):
                stack.callback(db.close)
            return db

        monkeypatch.setattr(sqlite3, "connect", connect_for_now)
        yield stack.enter_context(ready_crawlers())
