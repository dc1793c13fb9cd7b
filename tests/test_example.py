"""The example project, run the way its reader runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from irowiki.demo_wiki import DemoWiki, WikiPage

SOURCE = Path(__file__).parents[1] / "example_project"

# The add-on at full speed: these tests are about the spider.
UNPACED = ("-s", "POLITENESS_EXEMPT=127.0.0.1")


@dataclass(frozen=True)
class Run:
    exit_code: int
    log: str
    items: list[dict[str, Any]]

    @property
    def summary(self) -> str:
        """The spider's closing line."""
        [line] = [line for line in self.log.split("\n") if "pages listed" in line]
        return line


@dataclass(frozen=True)
class Project:
    folder: Path

    def crawl(self, *options: str, **env: str) -> Run:
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", "crawl", "irowiki", *options],
            cwd=self.folder,
            env=os.environ | env,
            capture_output=True,
            encoding="utf-8",
            timeout=90,
        )
        feed = self.folder / "pages.jsonl"
        lines = feed.read_bytes().splitlines() if feed.exists() else []
        items = [json.loads(line) for line in lines]
        return Run(done.returncode, done.stderr, items)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy, so that a crawl writes nothing into the checkout."""
    monkeypatch.syspath_prepend(str(SOURCE))
    folder = tmp_path / "example_project"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("*.jsonl"))
    return Project(folder)


@contextmanager
def serving(wiki: DemoWiki) -> Iterator[str]:
    wiki.start()
    try:
        yield wiki.api_url
    finally:
        wiki.stop()


def written(run: Run) -> list[tuple[str, bytes, list[str]]]:
    return sorted(
        (item["title"], item["text"].encode(), item["categories"]) for item in run.items
    )


def existing(pages: tuple[WikiPage, ...]) -> list[tuple[str, bytes, list[str]]]:
    return sorted(
        (
            page.title,
            page.text.encode(),
            [f"Category:{name}" for name in sorted(page.categories)],
        )
        for page in pages
    )


def test_demo_crawl_gets_every_page_once_in_spite_of_refusals_and_lag(
    project: Project,
) -> None:
    from irowiki.demo_wiki import PAGES

    run = project.crawl()

    assert run.exit_code == 0
    assert written(run) == existing(PAGES)
    assert f"{len(PAGES)} pages listed, {len(PAGES)} written, nothing" in run.summary
    refused, lagged = re.findall(r"(\d+) (?:refused|answered with maxlag)", run.summary)
    assert int(refused) > 0
    assert int(lagged) > 0
    assert "ERROR" not in run.log


def test_reads_the_wiki_whose_api_it_is_given(project: Project) -> None:
    from irowiki.demo_wiki import PAGES, DemoWiki

    with serving(DemoWiki(limit=None, lag_at=None)) as api:
        run = project.crawl("-a", f"api={api}", *UNPACED)

    assert run.exit_code == 0
    assert written(run) == existing(PAGES)
    assert "nothing missing" in run.summary
    assert "demo wiki" not in run.log


def test_an_api_error_in_a_list_is_told_and_not_taken_for_its_end(
    project: Project,
) -> None:
    from irowiki.demo_wiki import PAGES, DemoWiki
    from irowiki.demo_wiki.server import Reply

    class BrokenWiki(DemoWiki):
        def reply(self, target: str) -> Reply:
            if "apcontinue" not in target:
                return super().reply(target)
            error = {"code": "internal_api_error_DBQueryError", "info": "Sorry."}
            return Reply(json.dumps({"error": error}), "application/json")

    with serving(BrokenWiki(limit=None, lag_at=None)) as api:
        run = project.crawl("-a", f"api={api}", *UNPACED)

    assert 0 < len(run.items) < len(PAGES)
    assert "ERROR" in run.summary
    assert "not read to its end: namespace 0" in run.summary
    assert "internal_api_error_DBQueryError" in run.log


def test_says_what_to_install_for_the_demo(project: Project, tmp_path: Path) -> None:
    absent = 'raise ModuleNotFoundError("No module named limits", name="limits")'
    (tmp_path / "limits.py").write_text(absent)

    run = project.crawl(PYTHONPATH=str(tmp_path))

    assert run.exit_code == 1
    assert "pip install 'scrapy-politeness[demo]'" in run.log
