"""Real crawls, each in a process of its own, as ``scrapy crawl`` runs them."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import scrapy
from scrapy import Spider, signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler, CrawlerProcess

from tests.support.forking import ForkServer
from tests.support.lag import METER
from tests.support.spiders import Pages, Walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from tests.support.forking import ForkedProcess

    Process: TypeAlias = subprocess.Popen[bytes] | ForkedProcess

Reactor = Literal["asyncio", "select", "none", "uvloop"]

# Under which all crawls are to run that need no certain one: see tests/conftest.py.
_chosen: Any = os.environ.get("CRAWL_REACTOR")

DEFAULT_REACTOR: Reactor = _chosen or "asyncio"

REACTORS: tuple[Reactor, ...] = (_chosen,) if _chosen else ("asyncio", "select", "none")

# At the floor, old packages use what is deprecated in a newer Python.
WARNINGS = os.environ.get("CRAWL_WARNINGS", "error")
if DEFAULT_REACTOR == "uvloop":
    # Scrapy makes a loop of the standard library first, and leaves it open.
    WARNINGS += ",ignore::ResourceWarning"

SPIDERS: dict[str, type[Spider]] = {"pages": Pages, "walk": Walk}

STOCK: dict[str, Any] = {"ADDONS": {}}
"""Settings of a crawl without the add-on."""

DEFAULTS: dict[str, Any] = {
    "ADDONS": {"scrapy_politeness.Addon": 500},
    # The test sites are on loopback, which is exempt by default.
    "POLITENESS_EXEMPT": [],
    "LOG_LEVEL": "DEBUG",
    "TELNETCONSOLE_ENABLED": False,
}

REACTOR_SETTINGS: dict[Reactor, dict[str, Any]] = {
    "asyncio": {},
    "select": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
    "none": {"TWISTED_REACTOR_ENABLED": False},
    "uvloop": {"ASYNCIO_EVENT_LOOP": "uvloop.Loop"},
}

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Crawl:
    """What came of a crawl.

    ``seconds`` is from spider_opened to spider_closed, ``cpu_seconds`` what the
    process worked in that time; both are 0 where one of the signals never came.
    ``log`` is all that the process wrote, tracebacks included. A crawl that was
    killed has neither items nor stats.
    """

    items: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    returncode: int = 0
    log: str = ""


class RunningCrawl:
    """A crawl under way. As a context manager, it is killed at the end if needed."""

    def __init__(
        self,
        process: Process,
        folder: Path,
        terminal: Terminal | None = None,
    ) -> None:
        self.process = process
        self._folder = folder
        self._terminal = terminal
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __enter__(self) -> RunningCrawl:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.wait()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()

    def log_so_far(self) -> str:
        return (self._folder / "log").read_bytes().decode("utf-8", "replace")

    def wait_for_log(self, text: str, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while text not in self.log_so_far():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise TimeoutError(f"{text!r} never came in:\n{self.log_so_far()}")
            time.sleep(0.02)

    def wait(self, timeout: float = 60.0) -> Crawl:
        try:
            returncode = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            tail = "\n".join(self.log_so_far().splitlines()[-40:])
            raise TimeoutError(f"Still crawling after {timeout} s:\n{tail}") from None
        if self._terminal is not None:
            self._terminal.finish()
        result = self._folder / "result"
        found = pickle.loads(result.read_bytes()) if result.exists() else {}
        METER.add(found.pop("lags", []))
        return Crawl(**found, returncode=returncode, log=self.log_so_far())


class Terminal:
    """A pseudo-terminal; what is written there is written down."""

    def __init__(self, columns: int, lines: int, log: Path) -> None:
        self._master, self.slave = os.openpty()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        self._log = log
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._log.open("wb", buffering=0) as log:
            try:
                while data := os.read(self._master, 65536):
                    log.write(data)
            except OSError:  # so Linux says that nobody has it open any more
                pass
        os.close(self._master)

    def finish(self) -> None:
        """The crawl has ended."""
        self._reader.join()


def start_crawl(
    spider: type[Spider] | str = Pages,
    *,
    settings: Mapping[str, Any] | None = None,
    urls: list[str] | None = None,
    requests: list[dict[str, Any]] | None = None,
    reactor: Reactor = DEFAULT_REACTOR,
    env: Mapping[str, str] | None = None,
    terminal: tuple[int, int] | None = None,
    **arguments: Any,
) -> RunningCrawl:
    """Start a crawl and do not wait for it; in a ``terminal`` of so many columns and
    lines, if that is given: then the log is what was sent there, codes included.

    Spider classes and settings travel by pickle, so classes must be importable.
    ``requests`` and further keyword arguments are given to the spider.
    """
    if reactor == "none" and not scrapy_runs_without_reactor():
        import pytest

        pytest.skip("crawls without a reactor need Scrapy 2.15")
    folder = Path(tempfile.mkdtemp(prefix="crawl-"))
    job = {
        "spider": SPIDERS[spider] if isinstance(spider, str) else spider,
        "settings": {**DEFAULTS, **REACTOR_SETTINGS[reactor], **(settings or {})},
        "arguments": {"urls": urls or [], "requests": requests, **arguments},
        "reactor": reactor,
    }
    (folder / "job").write_bytes(pickle.dumps(job))
    log = folder / "log"
    screen = Terminal(*terminal, log) if terminal else None
    output = screen.slave if screen else os.open(log, os.O_WRONLY | os.O_CREAT)
    try:
        process = start_process(folder, env, output)
    finally:
        os.close(output)
    return RunningCrawl(process, folder, screen)


def start_process(
    folder: Path,
    env: Mapping[str, str] | None,
    output: int,
    command: Sequence[str] = (),
    *,
    errors: int | None = None,
) -> Process:
    """Run a command of Scrapy, or the job that is written down in the folder. Scrapy
    keeps its .scrapy folder where it is started. ``errors`` go where the output goes,
    unless that is given."""
    errors = output if errors is None else errors
    whole = {**os.environ, **environment(), **(env or {})}
    if hasattr(os, "pidfd_open"):
        # Python reads some variables only when it starts.
        server = _fork_server(**(env or {}))
        return server.start(str(folder), whole, output, errors, command)
    program = ("scrapy", *command) if command else ("tests.support.crawl",)
    return subprocess.Popen(
        [sys.executable, "-m", *program],
        cwd=folder,
        env=whole,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
    )


@functools.cache
def _fork_server(**env: str) -> ForkServer:
    return ForkServer({**os.environ, **environment(), **env})


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    exit_code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_scrapy(*command: str, cwd: Path, **env: str) -> Done:
    """Run a command of Scrapy to its end, in a process of its own."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start_process(cwd, env, out.fileno(), command, errors=err.fileno())
        try:
            exit_code = process.wait(60.0)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Done(exit_code, out.read().decode(), err.read().decode())


def crawl(
    spider: type[Spider] | str = Pages, *, timeout: float = 60.0, **options: Any
) -> Crawl:
    """Run a crawl to its end; the options are those of ``start_crawl``."""
    with start_crawl(spider, **options) as running:
        return running.wait(timeout)


def scrapy_runs_without_reactor() -> bool:
    return scrapy.version_info >= (2, 15)


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "PYTHONWARNINGS": WARNINGS}


class _Notes:
    """What the crawl's signals tell, for the process that started it."""

    def __init__(self, crawler: Crawler) -> None:
        self.items: list[dict[str, Any]] = []
        self.opened = False
        self.seconds = self.cpu_seconds = 0.0
        connect = crawler.signals.connect
        connect(self._item_scraped, signals.item_scraped)
        connect(self._spider_opened, signals.spider_opened)
        connect(self._spider_closed, signals.spider_closed)

    def _item_scraped(self, item: dict[str, Any]) -> None:
        self.items.append(item)

    def _spider_opened(self) -> None:
        self.opened = True
        self._opened_at = time.monotonic(), time.process_time()

    def _spider_closed(self) -> None:
        at, cpu_at = self._opened_at
        self.seconds = time.monotonic() - at
        self.cpu_seconds = time.process_time() - cpu_at


def _stats(crawler: Crawler) -> dict[str, Any]:
    try:
        return dict(crawler.stats.get_stats()) if crawler.stats else {}
    except RuntimeError:  # from Scrapy 2.18, when the crawl never started
        return {}


def _run(
    spider: type[Spider],
    settings: dict[str, Any],
    arguments: dict[str, Any],
    reactor: Reactor,
) -> int:
    # The same choice that `scrapy crawl` makes.
    process_class = CrawlerProcess if reactor == "select" else AsyncCrawlerProcess
    process = process_class(settings)
    crawler = process.create_crawler(spider)
    notes = _Notes(crawler)
    process.crawl(crawler, **arguments)
    process.start()
    result = {
        "items": notes.items,
        "stats": _stats(crawler),
        "seconds": notes.seconds,
        "cpu_seconds": notes.cpu_seconds,
        "lags": METER.notes(),
    }
    Path("result").write_bytes(pickle.dumps(result))
    # Scrapy 2.14 forgets failures that come after the spider was made.
    return int(process.bootstrap_failed or not notes.opened)


def run_job() -> int:
    """Do what was written down in the folder where this process was started."""
    METER.start()
    return _run(**pickle.loads(Path("job").read_bytes()))


if __name__ == "__main__":
    sys.exit(run_job())
