"""The scheduler's priority queue: it knows who may go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy_politeness.backlog import Backlog, DiskBacklog, MemoryBacklog
from scrapy_politeness.extension import PolitenessExtension
from scrapy_politeness.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol
    from typing_extensions import Self

    from scrapy_politeness.core.scope import Scope

# What Scrapy writes into active.json for a queue that still has requests. A list, so
# that Scrapy's own default queue refuses to start on it instead of finding nothing.
_SIGNATURE = ["scrapy_politeness.PolitePriorityQueue"]

# So many requests may be damaged or in the wrong slot before a pop gives the event
# loop a chance; the next one goes on.
_MOST_PASSED_OVER = 100


class PolitePriorityQueue:
    """Pops only what may be sent now; the rest stays where it is, outside the
    downloader.

    Slots take turns: the one that has been ready longest goes first. Within a slot,
    requests go by priority. When nothing may go, ``pop`` returns None, and the engine
    is woken as soon as that changes. Pushing and popping cost O(log slots).
    """

    @classmethod
    def from_crawler(
        cls,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        startprios: Iterable[Any] = (),
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> Self:
        return cls(
            crawler,
            downstream_queue_cls,
            key,
            startprios,
            start_queue_cls=start_queue_cls,
        )

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        startprios: Iterable[Any] = (),
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> None:
        if startprios and startprios != _SIGNATURE:
            raise ValueError(
                f"The requests in {key} were put there by another "
                "SCHEDULER_PRIORITY_QUEUE than scrapy_politeness.PolitePriorityQueue; "
                "only the queue that a crawl was started with can resume it"
            )
        extension = crawler.get_extension(PolitenessExtension)
        if extension is None:
            raise ValueError(
                "scrapy_politeness.PolitePriorityQueue needs "
                "scrapy_politeness.PolitenessExtension in EXTENSIONS, and "
                "POLITENESS_ENABLED"
            )
        self._extension = extension
        self._is_stored = bool(key)
        self._backlog: Backlog
        if key:
            self._backlog = DiskBacklog(
                key,
                crawler,
                downstream_queue_cls,
                start_queue_cls,
                extension.engine.in_progress,
            )
        else:
            self._backlog = MemoryBacklog(
                crawler, downstream_queue_cls, start_queue_cls
            )
        self._turns = Turns(extension, self._backlog)
        now = time.monotonic()
        for slot in self._backlog.slots():
            self._turns.plan(slot, now)
        extension.add_queue(self)

    def push(self, request: Request) -> None:
        slot = self._queue_key(request)
        is_new = slot not in self._backlog
        self._backlog.push(slot, request)  # may fail: a request that cannot be stored
        if is_new:
            now = time.monotonic()
            self._turns.plan(slot, now)
            self._extension.queued(slot, now)

    def pop(self) -> Request | None:
        now = time.monotonic()
        for _ in range(_MOST_PASSED_OVER):
            slot = self._turns.next_slot(now)
            if slot is None and self._extension.sweep():
                slot = self._turns.next_slot(now)
            if slot is None:
                break
            request = self._backlog.pop(slot)
            if request is None:
                continue
            if self._is_stored and self._queue_key(request) != slot:
                # Stored by a run with another POLITENESS_EXEMPT.
                self.push(request)
                now = time.monotonic()
                continue
            self._extension.handed_out(request, slot, now)
            self._turns.over(slot)
            if slot in self._backlog:
                self._turns.plan(slot, now)
            return request
        self._backlog.rest()
        self._extension.alarm.set(self._turns.next_time)
        return None

    def peek(self) -> Request | None:
        now = time.monotonic()
        while (slot := self._turns.next_slot(now)) is not None:
            request = self._backlog.peek(slot)
            if request is not None:
                return request
        return None

    def close(self) -> list[str]:
        left = bool(self._backlog)
        self._backlog.close()
        return _SIGNATURE if left else []

    def __len__(self) -> int:
        return len(self._backlog)

    def __contains__(self, slot: str) -> bool:
        return slot in self._backlog

    def count(self, slot: str) -> int:
        return self._backlog.count(slot)

    def slot_changed(self, slot: Scope) -> None:
        """The slot, or what it shares with others, may be ready at another time than
        was planned."""
        self._turns.server_changed(slot.key)
        if slot.key in self._backlog:
            self._turns.plan(slot.key, time.monotonic())
        if self._backlog:
            self._extension.alarm.set(self._turns.next_time)

    def _queue_key(self, request: Request) -> str:
        return self._extension.layers.queue_key(request)
