"""The queue for scrapy-redis, which all processes share:
``SCHEDULER_QUEUE_CLASS = "scrapy_politeness.scrapy_redis.PoliteQueue"``."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import DontCloseSpider

from scrapy_politeness.components.extension import parts_of
from scrapy_politeness.scheduling.slot_queue import SlotQueue
from scrapy_politeness.storage.redis_backlog import SharedBacklog
from scrapy_politeness.storage.redis_requests import SharedQueue

if TYPE_CHECKING:
    from redis import Redis
    from scrapy import Request, Spider

    from scrapy_politeness.storage.redis_backlog import Serializer

_NAME = "scrapy_politeness.scrapy_redis.PoliteQueue"


class PoliteQueue(SlotQueue):
    """Each process pops only what it may send now; the rest stays in Redis, for the
    process that may send it first. None closes while another one is at work."""

    # Each is a round trip that blocks the event loop.
    _most_passed_over = 10

    _is_shared = True

    def __init__(
        self,
        server: Redis,
        spider: Spider,
        key: str,
        serializer: Serializer | None = None,
    ) -> None:
        if not spider.settings.getbool("SCHEDULER_PERSIST"):
            raise ValueError(
                f"SCHEDULER_PERSIST=False: must be True with {_NAME}; otherwise the "
                "first process that closes deletes the waiting requests of all others"
            )
        queue = SharedQueue(server, key)
        if queue.is_foreign():
            raise ValueError(
                f"The requests in {key} were put there by another "
                f"SCHEDULER_QUEUE_CLASS than {_NAME}; only the queue that a crawl was "
                "started with can resume it"
            )
        parts = parts_of(spider.crawler, _NAME)
        self._shared = SharedBacklog(
            queue,
            spider,
            serializer or pickle,
            in_progress=parts.engine.in_progress,
            found=self._plan,
        )
        super().__init__(parts, self._shared)
        spider.crawler.signals.connect(self._spider_idle, signals.spider_idle)
        spider.crawler.signals.connect(self._spider_closed, signals.spider_closed)

    def pop(self, timeout: float = 0) -> Request | None:
        """Ignore the timeout, since the event loop has other work."""
        request = None if self._shared.is_away else super().pop()
        if request is None:
            self._alarm.set(self._shared.look_at)
        return request

    def __len__(self) -> int:
        """Ask again before returning 0, at which this process may close."""
        if not self._shared:
            self._shared.look()
        return len(self._shared)

    def has_work(self, slot_key: str) -> bool:
        """Other processes may find more."""
        return bool(self._shared.others_at_work) or super().has_work(slot_key)

    def clear(self) -> None:
        self._shared.clear()

    def _spider_idle(self) -> None:
        if self._shared.others_at_work:
            raise DontCloseSpider("Other processes may find more to do")

    def _spider_closed(self) -> None:
        # Send what is kept, and say that this process is no longer at work.
        self._shared.look()
