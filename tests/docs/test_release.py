"""What a user gets who installs a release, and not a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.crawl import WARNINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

ROOT = Path(__file__).parents[2]

NEEDED_TO_BUILD = ("pyproject.toml", "setup.cfg", "README.md", "LICENSE")

ADDED_LINE = 'ADDONS = {"scrapy_politeness.Addon": 500}'

USER_CODE = """
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy_politeness import (
    Addon,
    PolitenessExtension,
    PolitenessMiddleware,
    PolitePriorityQueue,
    RateLimiter,
    RescheduleMiddleware,
    __version__,
)
from scrapy_politeness.signals import slot_paused

SETTINGS = {
    "ADDONS": {Addon: 500},
    "SCHEDULER_PRIORITY_QUEUE": PolitePriorityQueue,
    "DOWNLOADER_MIDDLEWARES": {PolitenessMiddleware: 950, RescheduleMiddleware: 650},
}


def slow_down(crawler: Crawler, spider: Spider) -> str:
    politeness = crawler.get_extension(PolitenessExtension)
    assert politeness is not None
    politeness.set_rate("example.org", 2.5)
    politeness.hold("example.org", 60)
    politeness.hold("example.org", "long")  # type: ignore[arg-type]
    crawler.signals.connect(print, slot_paused)
    return __version__


limiter = RateLimiter(2.5)
RateLimiter([2.5])  # type: ignore[arg-type]


@limiter
def lookup(name: str) -> int:
    return len(name)


lookup(7)  # type: ignore[arg-type]
"""


# They need the documents and the example project, too.
QUICK_TESTS = (
    "tests/unit/test_core.py",
    "tests/unit/test_example_parts.py",
    "tests/docs/test_reference.py",
)


def run(*arguments: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONWARNINGS": WARNINGS} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build_wheel(folder: Path) -> zipfile.ZipFile:
    """From a copy: what an earlier build has left must not get in."""
    source = folder / "source"
    package = "scrapy_politeness"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in NEEDED_TO_BUILD:
        shutil.copy(ROOT / name, source)
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    run("-c", build, cwd=source, PYTHONWARNINGS="default")
    [wheel] = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_the_wheel_and_one_line_make_a_new_project_polite(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    with build_wheel(tmp_path) as wheel:
        wheel.extractall(installed)
    files = {
        path.relative_to(ROOT)
        for path in (ROOT / "scrapy_politeness").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == {
        path.relative_to(installed)
        for path in (installed / "scrapy_politeness").rglob("*")
        if path.is_file()
    }

    def scrapy(*arguments: str, cwd: Path) -> str:
        return run("-m", "scrapy", *arguments, cwd=cwd, PYTHONPATH=str(installed))

    scrapy("startproject", "shop", cwd=tmp_path)
    project = tmp_path / "shop"
    scrapy("genspider", "pages", "127.0.0.1", cwd=project)
    settings = project / "shop" / "settings.py"
    assert settings.read_text().count("\nADDONS = {}\n") <= 1
    settings.write_text(
        settings.read_text().replace("\nADDONS = {}\n", "\n") + ADDED_LINE + "\n"
    )
    server = site(3, robots="User-agent: *\nDisallow: /page/2")
    spider = project / "shop" / "spiders" / "pages.py"
    spider.write_text(
        spider.read_text()
        .replace('["https://127.0.0.1"]', repr(server.page_urls()))
        .replace("pass", "yield {'code': __import__('scrapy_politeness').__file__}")
    )

    # Loopback is exempt, and the template asks for a second between requests.
    options = ("-s", "POLITENESS_EXEMPT=", "-s", "DOWNLOAD_DELAY=0.3")
    log = scrapy("crawl", "pages", *options, cwd=project)
    assert f"{{'code': '{installed}/" in log
    assert "INFO: Polite crawl: each slot starts at 1/s" in log
    paths = [arrival.path for arrival in server.arrivals]
    assert sorted(paths) == ["/page/0", "/page/1", "/robots.txt"]
    assert min(server.gaps()) > 0.2
    told = scrapy("politeness", "simulate", "40/10s", cwd=project)
    assert "pages in 600 s" in told


@pytest.mark.release
def test_a_user_with_mypy_sees_the_types(tmp_path: Path) -> None:
    tmp_path.joinpath("project.py").write_text(USER_CODE)
    told = run("-m", "mypy", "--strict", "project.py", cwd=tmp_path)
    assert "Success: no issues found in 1 source file" in told


@pytest.mark.release
def test_the_sdist_has_all_and_its_tests_pass(tmp_path: Path) -> None:
    run(*("-m", "build", "--installer", "uv", "-o", str(tmp_path)), ".", cwd=ROOT)
    packages = [str(path) for path in tmp_path.iterdir()]
    run("-m", "twine", "check", "--strict", *packages, cwd=tmp_path)
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    missing = [name for name in tracked.splitlines() if not (source / name).is_file()]
    assert missing == []
    run("-m", "pytest", "-q", "--collect-only", cwd=source)
    run("-m", "pytest", "-q", *QUICK_TESTS, cwd=source)
