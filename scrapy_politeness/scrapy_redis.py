"""The queue for scrapy-redis, which all processes share:
``SCHEDULER_QUEUE_CLASS = "scrapy_politeness.scrapy_redis.PoliteQueue"``; and the
duplicates filter that the add-on replaces scrapy-redis's own by."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from redis import RedisCluster
from scrapy import signals
from scrapy.exceptions import DontCloseSpider
from scrapy_redis.dupefilter import (  # type: ignore[import-untyped]
    RFPDupeFilter,
)

from scrapy_politeness.components.extension import parts_of
from scrapy_politeness.scheduling.slot_queue import SlotQueue
from scrapy_politeness.scheduling.timers import Watch
from scrapy_politeness.storage.redis_backlog import AWAY, SharedBacklog
from scrapy_politeness.storage.redis_requests import Fingerprint, SharedQueue

if TYPE_CHECKING:
    from redis import Redis
    from scrapy import Request, Spider
    from typing_extensions import Self

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
        self._shared.hears_of_ends = parts.engine.when_done(self._shared.done)
        self._watch = Watch(self._show_life)
        spider.crawler.signals.connect(self._spider_idle, signals.spider_idle)
        spider.crawler.signals.connect(self._spider_closed, signals.spider_closed)

    def pop(self, timeout: float = 0) -> Request | None:
        """Ignore the timeout, since the event loop has other work."""
        request = None if self._shared.is_away else super().pop()
        if request is None:
            self._alarm.set(self._shared.look_at)
        else:
            self._watch.start()
        return request

    def __len__(self) -> int:
        """Ask again before returning 0, at which this process may close."""
        if not self._shared:
            self._shared.look()
        return len(self._shared)

    def has_work(self, slot_key: str) -> bool:
        """Other processes may find more."""
        return bool(self._shared.others_at_work) or super().has_work(slot_key)

    def is_seen(self, request: Request, fingerprint: Fingerprint) -> bool:
        """Tell whether an equal request waits to be sent to the server. If not, this
        one is pushed only if it was not seen there."""
        if self._shared.is_kept(fingerprint):
            return True
        self._shared.filter(request, fingerprint)
        return False

    def clear(self) -> None:
        self._shared.clear()

    def _spider_idle(self) -> None:
        if self._shared.others_at_work:
            raise DontCloseSpider("Other processes may find more to do")

    def _show_life(self) -> bool:
        """While all places are taken by long downloads, nothing is popped."""
        self._shared.tidy()
        return bool(self._parts.engine.in_progress())

    def _spider_closed(self) -> None:
        self._watch.stop()
        # Send what is kept, and say that this process is no longer at work.
        self._shared.look()


class PoliteDupeFilter(RFPDupeFilter):  # type: ignore[misc]
    """Leaves it to the queue to note what was seen, in one step with the request: a
    process that is killed in between would lose the page for all."""

    _queue: PoliteQueue | None = None

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """By now, the scheduler has made its queue."""
        dupefilter: Self = super().from_spider(spider)
        if isinstance(dupefilter.server, RedisCluster):
            return dupefilter  # another node may have what was seen
        for queue in parts_of(spider.crawler, f"{__name__}.{cls.__name__}").queues:
            if isinstance(queue, PoliteQueue):
                dupefilter._queue = queue
        return dupefilter

    def request_seen(self, request: Request) -> bool:
        if self._queue is None:
            return bool(super().request_seen(request))
        fingerprint = self.request_fingerprint(request)
        try:
            if self.server.sismember(self.key, fingerprint):
                return True
        except AWAY:
            pass  # the queue keeps the request, and asks again
        return self._queue.is_seen(request, Fingerprint(self.key, fingerprint))
