"""The summary at the end of a run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from irowiki.ledger import Ledger, Tally
    from irowiki.spiders.irowiki import IrowikiSpider

# How many missing pieces are listed.
_NAMED = 5

# A wiki's own counters are updated edit by edit, and drift.
_TOLERANCE = 0.01


class Counts(NamedTuple):
    pages: Tally
    files: Tally
    # The wiki's own counts.
    statistics: dict[str, int]
    are_lists_read: bool
    namespaces: str

    @classmethod
    def read(cls, ledger: Ledger) -> Counts:
        lists = [ledger.tally(kind) for kind in ("site", "namespace", "files")]
        return cls(
            ledger.tally("page"),
            ledger.tally("file"),
            json.loads(ledger.noted("statistics") or "{}"),
            all(tally.done == tally.known for tally in lists),
            ledger.noted("namespaces") or "",
        )

    @property
    def done(self) -> int:
        return self.pages.done + self.files.done

    @property
    def left(self) -> int:
        known = self.pages.known + self.files.known
        if not self.are_lists_read:
            pages = "pages" if self.namespaces == "all" else "articles"
            known = max(known, self._counted(pages) + self._counted("images"))
        return known - self.done

    def suspicions(self) -> list[str]:
        """Return where the wiki counts more than it has listed.

        It counts the pages of all namespaces together, and articles: content pages
        that have a link and are not redirects. The lists must have at least as many.
        """
        listed = {"images": self.files.listed}
        if self.namespaces == "all":
            listed["pages"] = self.pages.listed
        elif self.namespaces == "content":
            listed["articles"] = self.pages.listed
        return [
            f"the wiki listed {count} {name}, but counts {self._counted(name)}"
            for name, count in listed.items()
            if count < (1 - _TOLERANCE) * self._counted(name)
        ]

    def _counted(self, name: str) -> int:
        return self.statistics.get(name, 0)

    def __str__(self) -> str:
        return (
            f"{self.pages.done} of {self.pages.known} pages "
            f"({self.pages.parts} revisions) and "
            f"{self.files.done} of {self.files.known} files"
        )


def summary(spider: IrowikiSpider, reason: str) -> tuple[int, str]:
    """Return the log level and the text."""
    counts = Counts.read(spider.ledger)
    level, verdict = _verdict(spider, counts, reason)
    lines = [
        f"Archived {counts}.",
        verdict,
        *_about_the_wiki(spider, counts),
        f"Refused in this run: {_refusals(spider)}.",
        f"Archive: {spider.folder.resolve()}",
        *_report(spider),
    ]
    return level, "\n    ".join(lines)


def _verdict(spider: IrowikiSpider, counts: Counts, reason: str) -> tuple[int, str]:
    gaps = spider.ledger.gaps(_NAMED)
    if not gaps:
        suspicions = counts.suspicions()
        if suspicions:
            return logging.WARNING, f"Possibly incomplete: {'; '.join(suspicions)}."
        again = " To archive the wiki again, rename the folder."
        return logging.INFO, f"Nothing is missing.{again if _was_idle(spider) else ''}"
    if reason not in ("finished", "politeness_blocked"):
        return logging.INFO, "To resume, run the same command again."
    return logging.ERROR, (
        f"MISSING: {', '.join(gaps)}"
        f"{' and others' if len(gaps) == _NAMED else ''}. "
        "Run the same command again to retry."
    )


def _about_the_wiki(spider: IrowikiSpider, counts: Counts) -> list[str]:
    names = {"pages": "pages in all namespaces", "images": "files"}
    counted = [
        f"{counts.statistics[name]} {names.get(name, name)}"
        for name in ("pages", "articles", "edits", "images")
        if name in counts.statistics
    ]
    gone = counts.pages.gone + counts.files.gone
    return [
        *([f"The wiki's own counts: {', '.join(counted)}."] if counted else []),
        *([f"Deleted before they could be archived: {gone}."] if gone else []),
    ]


def _refusals(spider: IrowikiSpider) -> str:
    stats = spider.crawler.stats
    assert stats is not None
    refused = stats.get_value("politeness/refused", 0)
    given_up = stats.get_value("politeness/given_up", 0)
    text = str(refused)
    if refused:
        again = "all" if not given_up else f"all but {given_up}"
        text += f", {again} retried later"
    return f"{text} (demo wiki: {spider.demo.tally()})" if spider.demo else text


def _report(spider: IrowikiSpider) -> list[str]:
    path = spider.settings["POLITENESS_REPORT"]
    return [f"Report: {Path(path).resolve()}"] if path else []


def _was_idle(spider: IrowikiSpider) -> bool:
    assert spider.crawler.stats is not None
    return not spider.crawler.stats.get_value("downloader/request_count", 0)
