"""The crawlers, as their users configure them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.settings import default_settings

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds until the first request, and from being asked to end until being killed.
_LONGEST_START = 60.0
_LONGEST_END = 2.0

PROGRAMS = Path(__file__).parent / "programs"
NODE_MODULES = Path(os.environ.get("NODE_PATH", "node_modules")).absolute()


@dataclass(frozen=True)
class Crawler:
    """``command`` is followed by the path of a file with the URLs. ``needs`` says what
    to install if it is missing."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    needs: str = ""
    is_ours: bool = field(default=False)

    def run(
        self, urls: Path, folder: Path, has_begun: Callable[[], bool], longest: float
    ) -> float:
        """Return the seconds of CPU time. What takes too long, from its first request
        on, is stopped."""
        process = subprocess.Popen(
            [*self.command, str(urls), *self.after],
            cwd=folder,
            env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends_at = time.monotonic() + _LONGEST_START
        is_under_way = False
        while True:
            pid, _, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = 0
                return usage.ru_utime + usage.ru_stime
            now = time.monotonic()
            if not is_under_way and has_begun():
                is_under_way, ends_at = True, now + longest
            if now > ends_at:
                process.terminate()
            if now > ends_at + _LONGEST_END:
                process.kill()
            time.sleep(0.1)


def crawlers(rate: float) -> list[Crawler]:
    """``rate`` is what the server allows, which only the last one knows."""
    polite = {"ADDONS": {"scrapy_politeness.Addon": 500}, "POLITENESS_EXEMPT": []}
    automatic = {"AUTOTHROTTLE_ENABLED": True}
    sleeping = {
        "__main__.SleepOn429": 550,
        "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
    }
    exact = {"DOWNLOAD_DELAY": 1 / (0.975 * rate), **_without_jitter()}
    return [
        _scrapy("scrapy-politeness", polite, is_ours=True),
        _scrapy(
            "scrapy-politeness, at most 100/s",
            {**polite, "POLITENESS_MAX_RATE": 100},
            is_ours=True,
        ),
        _scrapy("Scrapy", {}),
        _scrapy("Scrapy, AutoThrottle", automatic),
        _scrapy(
            "Scrapy, AutoThrottle, target 8",
            {**automatic, "AUTOTHROTTLE_TARGET_CONCURRENCY": 8.0},
        ),
        _scrapy("Scrapy, sleeping on 429", {"DOWNLOADER_MIDDLEWARES": sleeping}),
        Crawler(
            "Crawlee for Python",
            (sys.executable, str(PROGRAMS / "crawlee_run.py")),
            needs="" if find_spec("crawlee") else 'pip install ".[bench]"',
        ),
        Crawler(
            "Crawlee",
            ("node", str(PROGRAMS / "crawlee_run.cjs")),
            needs=needs_node("@crawlee/http"),
        ),
        Crawler(
            "wget",
            (
                *("wget", "-q", "-O", "/dev/null", "--tries=20", "--waitretry=10"),
                *("--retry-on-http-error=429,503", "-i"),
            ),
            needs="" if shutil.which("wget") else "apt-get install wget",
        ),
        _scrapy("someone who knew the limit", exact),
    ]


def _scrapy(name: str, settings: dict[str, Any], *, is_ours: bool = False) -> Crawler:
    command = (sys.executable, str(PROGRAMS / "scrapy_run.py"))
    # As Scrapy's project template has it, but for its delay of a second.
    settings = {"ROBOTSTXT_OBEY": True, **settings}
    return Crawler(name, command, (json.dumps(settings),), is_ours=is_ours)


def _without_jitter() -> dict[str, Any]:
    if hasattr(default_settings, "DOWNLOAD_DELAY_JITTER"):
        return {"DOWNLOAD_DELAY_JITTER": 0}
    return {"RANDOMIZE_DOWNLOAD_DELAY": False}


def needs_node(package: str) -> str:
    if not shutil.which("node"):
        return "apt-get install nodejs npm"
    found = (NODE_MODULES / package).exists()
    return "" if found else f"npm install {package}"
