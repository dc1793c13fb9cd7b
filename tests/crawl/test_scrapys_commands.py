"""Scrapy's other commands, run the way their user runs them: polite, and they end."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import scrapy

from tests.support.site import Answer, refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.site import Site

SPIDER = """
from scrapy import Spider

class Shop(Spider):
    name = "shop"
    start_urls = ["URL/page/0"]

    def parse(self, response):
        '''
        @url URL/page/0
        @returns items 1 1
        @returns requests 3 3
        '''
        yield {"found": response.url}
        yield from response.follow_all(css="a")
"""

SETTINGS = """
SPIDER_MODULES = ["shop"]
ADDONS = {"scrapy_politeness.Addon": 500}
POLITENESS_EXEMPT = []
POLITENESS_START_RATE = 4
POLITENESS_MIN_RATE = 4
POLITENESS_BACKOFF_BASE = 0.3
TELNETCONSOLE_ENABLED = False
"""


def run(
    command: list[str], server: Site, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Runs a command of Scrapy in a project with one spider."""
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = own\n")
    (folder / "own.py").write_text(SETTINGS)
    (folder / "shop.py").write_text(SPIDER.replace("URL", server.url))
    return subprocess.run(
        [sys.executable, "-m", "scrapy"]
        + [argument.replace("URL", server.url) for argument in command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("command", "said", "asked"),
    [
        (
            [
                "shell",
                "URL/page/0",
                "-c",
                "fetch('URL/page/1') or response.css('title')",
            ],
            "Page 1",
            ["/page/0", "/page/0", "/page/1", "/page/1"],
        ),
        (
            ["parse", "URL/page/0", "--spider=shop", "--depth=2"],
            "/page/3'}",
            [f"/page/{number}" for number in range(4) for _ in range(2)],
        ),
        (["check"], "Ran 2 contracts", ["/page/0", "/page/0"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_scrapys_commands_get_what_was_refused_and_end(
    site: Callable[..., Site],
    tmp_path: Path,
    command: list[str],
    said: str,
    asked: list[str],
) -> None:
    server = site(4, answer=refuse(1, "/page"))
    done = run(command, server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    arrivals = [a.path for a in server.arrivals]
    assert arrivals[0] == "/robots.txt"
    assert sorted(arrivals[1:]) == asked
    assert min(server.gaps()) > 0.25 - server.jitter


def test_lists_and_dicts_may_be_typed_as_json(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    server = site(4)
    limits = '{"127.0.0.1": {"limit": "2/s", "adaptive": false}}'
    options = ["POLITENESS_EXEMPT=[]", f"POLITENESS_LIMITS={limits}"]
    done = run(["crawl", "shop", *(f"--set={o}" for o in options)], server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(server.pages_served()) == 4
    assert min(server.gaps()) > 0.5 - server.jitter

    wrong = '{"127.0.0.1": {"limt": "2/s"}}'
    done = run(["crawl", "shop", "-s", f"POLITENESS_LIMITS={wrong}"], server, tmp_path)
    assert done.returncode != 0 or scrapy.version_info < (2, 15)
    assert len(server.pages_served()) == 4
    told = f"CRITICAL: Cannot start the crawl: POLITENESS_LIMITS={wrong!r}: '127.0.0.1'"
    assert told in done.stderr


@pytest.mark.everywhere
@pytest.mark.parametrize(
    "reactor",
    ["", "TWISTED_REACTOR=twisted.internet.selectreactor.SelectReactor"],
    ids=["asyncio", "select"],
)
def test_a_crawl_that_is_not_welcome_exits_with_an_error(
    site: Callable[..., Site], tmp_path: Path, reactor: str
) -> None:
    forbidden = Answer(403, {"crawler-error": "CrawlerForbidden"})
    server = site(4, answer=lambda path, nth: forbidden if "page" in path else None)
    settings = ["--set", reactor] if reactor else []
    done = run(["crawl", "shop", *settings], server, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "Spider closed (politeness_blocked)" in done.stderr
    assert "Traceback" not in done.stderr
