"""The recipes of docs/migrating.md, tried."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness import PolitenessExtension
from scrapy_politeness.config.settings import PolicyError
from scrapy_politeness.config.table import SETTINGS
from tests.docs.documents import ROOT, Document
from tests.support.crawl import crawl
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Watchful

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy.crawler import Crawler

    from tests.support.site import Site

CHAPTER = Document(ROOT / "docs" / "migrating.md")
REFUSED = re.findall(r"<!-- refused: (.*) -->", CHAPTER.text)


def settings(block: str) -> dict[str, Any]:
    """What a project with this settings.py has, and not what is handy for tests."""
    names: dict[str, Any] = {name: row.default for name, row in SETTINGS.items()}
    names["CONCURRENT_REQUESTS_PER_DOMAIN"] = 8
    exec(block, names)
    return {name: value for name, value in names.items() if name.isupper()}


@pytest.mark.parametrize("block", CHAPTER.blocks("starts"))
def test_what_is_to_be_written_starts(
    crawler: Callable[..., Crawler], block: str
) -> None:
    assert crawler(**settings(block)).get_extension(PolitenessExtension) is not None


@pytest.mark.parametrize("error", REFUSED)
def test_what_is_to_be_removed_is_named(
    crawler: Callable[..., Crawler], error: str
) -> None:
    [block] = CHAPTER.blocks(re.escape(f"refused: {error}"))
    with pytest.raises(PolicyError, match=re.escape(error)):
        crawler(**settings(block))


def test_a_forgotten_middleware_that_sleeps_never_gets_to_it(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    [block] = CHAPTER.blocks("old middleware")
    (tmp_path / "old_middleware.py").write_text(block, "utf-8")

    def refuse_twice(path: str, nth: int) -> Answer | None:
        refused = path == "/page/0" and nth <= 2
        return Answer(429, {"Retry-After": "1"}) if refused else None

    server = site(8, answer=refuse_twice)
    result = crawl(
        Watchful,
        urls=server.page_urls(),
        settings=fixed(
            20,
            POLITENESS_BACKOFF_BASE=0.5,
            RETRY_TIMES=1,
            DOWNLOADER_MIDDLEWARES={
                "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
                "old_middleware.SleepOn429": 550,
            },
        ),
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
    )
    assert server.pages_served() == {f"/page/{number}": 1 for number in range(8)}
    assert result.stats["politeness/refused"] == 2
    assert "retry/count" not in result.stats
    assert result.stats["longest_stall"] < 30
