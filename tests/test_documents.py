"""Links lead somewhere, names exist, and pictures show what the code does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scrapy_politeness.settings import DEFAULTS
from tests import picture
from tests.documents import DOCUMENTS, README, ROOT, Document

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = sorted((ROOT / "example_project").rglob("*.py"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    document = Document(path)
    for link in document.links:
        name, _, anchor = link.partition("#")
        target = (document.path.parent / name).resolve() if name else document.path
        assert target.exists(), link
        if anchor:
            assert anchor in Document(target).anchors, link


def test_the_front_page_leads_to_every_chapter() -> None:
    linked = {link.partition("#")[0] for link in Document(README).links}
    chapters = {f"docs/{path.name}" for path in DOCUMENTS if path.parent != ROOT}
    assert chapters <= linked


@pytest.mark.parametrize("path", [*DOCUMENTS, *EXAMPLE], ids=lambda path: path.name)
def test_every_setting_that_is_mentioned_exists(path: Path) -> None:
    text = Document(path).text
    names = set(re.findall(r"\bPOLITENESS_[A-Z_]*[A-Z]\b", text))
    assert names <= set(DEFAULTS)


def test_the_picture_shows_what_the_governor_does() -> None:
    """``python -m tests.picture`` draws it anew."""
    assert picture.FILE.read_text("utf-8") == picture.picture()
    figures = picture.crawl().figures
    said = f"{figures.sent:,} requests, of which {figures.refused} were refused"
    assert said in Document(ROOT / "docs" / "how-it-works.md").text
