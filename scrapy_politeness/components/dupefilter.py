"""The duplicates filter for crawls with a job directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.dupefilters import RFPDupeFilter

from scrapy_politeness.components.extension import parts_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from scrapy_politeness.storage.seen import SeenRequests


class PoliteDupeFilter(RFPDupeFilter):
    """Keeps fingerprints where PolitePriorityQueue keeps the requests; without a queue
    on disk, in memory."""

    _crawler: Crawler
    _seen: SeenRequests | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        dupefilter = cls(debug=debug, fingerprinter=crawler.request_fingerprinter)
        dupefilter._crawler = crawler
        return dupefilter

    def open(self) -> None:
        """By now, the scheduler has opened its queues."""
        name = f"{__name__}.{type(self).__name__}"
        self._seen = parts_of(self._crawler, name).seen
        if self._seen is not None:
            self._seen.load(Path(self._crawler.settings["JOBDIR"], "requests.seen"))

    def request_seen(self, request: Request) -> bool:
        if self._seen is None:
            return super().request_seen(request)
        fingerprint = self.fingerprinter.fingerprint(request)
        return not self._seen.add(request, fingerprint)
