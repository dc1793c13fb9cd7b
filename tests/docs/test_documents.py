"""Links lead somewhere, names exist, and pictures show what the code does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from scrapy_politeness.config.table import SETTINGS
from tests.docs import picture
from tests.docs.documents import DOCUMENTS, README, ROOT, Document

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
    assert names <= set(SETTINGS)


def test_the_picture_is_one_that_is_drawn_today() -> None:
    """``python -m tests.docs.picture`` redraws it. Its curves follow the
    constants of the governor, so they are not compared."""
    kept, drawn = picture.FILE.read_text("utf-8"), picture.picture()
    assert outline(kept) == outline(drawn)


def outline(svg: str) -> list[tuple[str, str | None, str | None]]:
    """Tags, classes and texts, apart from what differs from crawl to crawl."""
    root = ElementTree.fromstring(svg)
    changing = {"refused", "pause"}
    return [
        (element.tag, element.get("class"), (element.text or "").strip())
        for element in root.iter()
        if element.get("class") not in changing and not element.tag.endswith("title")
    ]


@pytest.mark.parametrize("host", [picture.CHANGING, picture.UNLUCKY])
def test_the_pictured_crawl_does_what_the_text_says(host: picture.Host) -> None:
    slot = picture.crawl(host)
    series = slot.series
    assert series is not None
    served = slot["served"] / host.server().allowed(0.0, picture.SECONDS)
    assert served > 0.6
    by_bad_luck = host.bad_luck * slot["sent"]
    assert slot["refused"] - by_bad_luck < 0.01 * slot["sent"]
    assert any(series.ceiling)
    _, limit = host.limits[-1]
    [*_, last] = [rate for rate in series.rate if rate]
    assert last == pytest.approx(limit, rel=0.3)


def test_the_pictured_crawl_is_faster_than_one_that_believes_each_refusal() -> None:
    sent = sum(picture.cubic(picture.UNLUCKY)) * picture.BUCKET
    assert picture.crawl(picture.UNLUCKY)["sent"] > 1.3 * sent
