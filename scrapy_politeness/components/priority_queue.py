"""The scheduler's priority queue."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from scrapy_politeness.components.dupefilter import PoliteDupeFilter
from scrapy_politeness.components.extension import parts_of
from scrapy_politeness.config.settings import errors_logged
from scrapy_politeness.scheduling.slot_queue import SlotQueue
from scrapy_politeness.storage.disk_backlog import DiskBacklog
from scrapy_politeness.storage.job import SIGNATURE, job_errors
from scrapy_politeness.storage.memory_backlog import MemoryBacklog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol
    from typing_extensions import Self

    from scrapy_politeness.storage.backlog import OwnBacklog


logger = logging.getLogger(__name__)


class PolitePriorityQueue(SlotQueue):
    """Pushing and popping cost O(log slots)."""

    signature = SIGNATURE

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        with errors_logged(crawler.spider):
            return cls(crawler, *args, **kwargs)

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        startprios: Iterable[Any] = (),
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> None:
        # For schedulers with a folder of their own; Scrapy's was checked earlier.
        if startprios and startprios != SIGNATURE:
            raise ValueError(
                f"The requests in {key} were put there by another "
                "SCHEDULER_PRIORITY_QUEUE than scrapy_politeness.PolitePriorityQueue; "
                "only the queue that a crawl was started with can resume it"
            )
        parts = parts_of(crawler, "scrapy_politeness.PolitePriorityQueue")
        backlog: OwnBacklog
        if key:
            in_progress = parts.engine.in_progress
            with job_errors(key):
                backlog = DiskBacklog(
                    key,
                    crawler,
                    downstream_queue_cls,
                    start_queue_cls,
                    in_progress,
                    is_resumed=bool(startprios),
                )
            parts.engine.when_done(backlog.done)
            parts.seen = backlog.seen
            if backlog.seen and not _is_used(crawler):
                logger.warning(
                    "The job in %(folder)s was started with the duplicates filter of "
                    "scrapy-politeness; with another one, pages that were crawled "
                    "before may be fetched again",
                    {"folder": key},
                    extra={"spider": crawler.spider},
                )
        else:
            backlog = MemoryBacklog(crawler, downstream_queue_cls, start_queue_cls)
        self._own_backlog = backlog
        super().__init__(parts, backlog, is_stored=bool(key))

    def peek(self) -> Request | None:
        now = time.monotonic()
        self._release(now)
        while (slot := self._ready_slots.next_slot(now)) is not None:
            request = self._own_backlog.peek(slot)
            if request is not None:
                return request
        return None

    def close(self) -> list[str]:
        left = bool(self._own_backlog)
        self._own_backlog.close()
        return SIGNATURE if left else []


def _is_used(crawler: Crawler) -> bool:
    """Tell whether the duplicates filter of this run is ours."""
    dupefilter = load_object(crawler.settings["DUPEFILTER_CLASS"])
    return issubclass(dupefilter, PoliteDupeFilter)
