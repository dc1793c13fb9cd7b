"""What the package must not do, whatever it is told."""

from __future__ import annotations

import ast
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scrapy import Request

import scrapy_politeness
from scrapy_politeness.observe.reporter import write_report
from scrapy_politeness.observe.timeline import Sampler
from scrapy_politeness.storage.state_file import StateFile
from tests.support.crawl import start_crawl
from tests.support.observed import ObservedCrawl
from tests.support.ready import parts_of
from tests.support.settings import NO_ROBOTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from tests.support.redis_server import RedisServer
    from tests.support.site import Site

PACKAGE = Path(scrapy_politeness.__file__).parent

# What can run code that was made up by others.
RUNS_CODE = {"dill", "jsonpickle", "marshal", "pickle", "runpy", "shelve", "yaml"}
RUNS_PROGRAMS = {"multiprocessing", "popen2", "pty", "subprocess"}
CALLS = {"__import__", "compile", "eval", "exec", "execfile", "system", "popen"}

# Requests are stored as Scrapy and scrapy-redis store them.
PICKLES = {"backlog.py", "disk_backlog.py", "scrapy_redis.py"}


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def calls(tree: ast.AST) -> set[str]:
    """By bare names, and those of methods of ``os``."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                found.add(called.id)
            elif isinstance(called, ast.Attribute):
                owner = called.value
                if isinstance(owner, ast.Name) and owner.id in ("os", "builtins"):
                    found.add(called.attr)
    return found


def test_no_module_runs_what_it_reads() -> None:
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        allowed = {"pickle"} if path.name in PICKLES else set()
        assert imports(tree) & (RUNS_CODE | RUNS_PROGRAMS) <= allowed, path
        assert not calls(tree) & CALLS, path


def test_metrics_are_not_open_before_the_crawl_is(
    crawler: Callable[..., Crawler],
) -> None:
    """Nobody would close them where it fails before that."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    crawler(POLITENESS_PROMETHEUS_PORT=port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_report_replaces_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    page = tmp_path / "report.html"
    page.symlink_to(other)
    before = os.umask(0)
    try:
        write_report(ObservedCrawl(sampler=Sampler(0.0)).report(1.0), page)
    finally:
        os.umask(before)
    assert other.read_text() == "mine"
    assert not page.is_symlink()
    assert page.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "report.html"]


def directory(path: Path) -> None:
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere" / "file")


@pytest.mark.parametrize("put", [directory, os.mkfifo, link_to_itself, link_to_nowhere])
def test_a_state_file_that_is_none_is_an_error(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    path = tmp_path / "state"
    put(path)
    with pytest.raises(ValueError, match="cannot be opened"):
        StateFile(path)
    assert path.is_symlink() or path.exists()


def test_a_dot_behind_its_name_gives_a_host_no_other_limits(
    crawler: Callable[..., Crawler],
) -> None:
    limits = {"a.example": {"limit": "1/5s"}}
    registry = parts_of(
        crawler(POLITENESS_LIMITS=limits, POLITENESS_EXEMPT=["b.example"])
    ).registry
    slot = registry.slot_for(Request("http://A.example./page"))
    assert slot is registry.slot_for(Request("http://a.example/"))
    assert slot is not None
    assert slot.rate <= 0.2
    assert registry.slot_for(Request("http://b.example./")) is None


def test_whoever_deletes_all_keys_in_redis_makes_nobody_faster(
    site: Callable[..., Site], redis_server: RedisServer
) -> None:
    server = site(10)
    settings = {**NO_ROBOTS, "POLITENESS_REDIS_URL": redis_server.url}
    settings["POLITENESS_LIMITS"] = {"127.0.0.1": {"limit": "10/s", "adaptive": False}}
    client = redis_server.client()
    with start_crawl(urls=server.page_urls(), settings=settings) as running:
        while running.process.poll() is None:
            client.flushall()
            time.sleep(0.02)
        assert len(running.wait().items) == 10
    times = [arrival.at for arrival in server.arrivals]
    assert times[-1] - times[0] > 9 / 10 - 0.2
