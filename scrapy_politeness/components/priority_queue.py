"""The scheduler's priority queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy_politeness.components.extension import parts_of
from scrapy_politeness.scheduling.slot_queue import SlotQueue
from scrapy_politeness.storage.disk_backlog import DiskBacklog
from scrapy_politeness.storage.job import SIGNATURE
from scrapy_politeness.storage.memory_backlog import MemoryBacklog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol
    from typing_extensions import Self

    from scrapy_politeness.storage.backlog import OwnBacklog


class PolitePriorityQueue(SlotQueue):
    """Pushing and popping cost O(log slots)."""

    signature = SIGNATURE

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
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
            backlog = DiskBacklog(
                key, crawler, downstream_queue_cls, start_queue_cls, in_progress
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
