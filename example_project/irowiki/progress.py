"""Logs once a minute what is archived, what is left and how long that will take."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.utils.asyncio import create_looping_call

from irowiki.summary import Counts, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from typing_extensions import Self

    from irowiki.spiders.irowiki import IrowikiSpider

# Seconds.
EVERY = 60.0
# The last minutes predict the next hours best: the rate rises at first, and changes
# later.
PERIOD = 5 * EVERY

logger = logging.getLogger(__name__)


class Estimate:
    """How long the rest will take, judging by the last few minutes."""

    def __init__(self, now: float, done: int) -> None:
        self._marks = deque([(now, done)])

    def seconds_left(self, now: float, done: int, left: int) -> float | None:
        """Return None while there is no basis for an estimate."""
        while len(self._marks) > 1 and self._marks[1][0] <= now - PERIOD:
            self._marks.popleft()
        then, done_then = self._marks[0]
        self._marks.append((now, done))
        if done == done_then:
            return None
        return left * (now - then) / (done - done_then)


class Progress:
    """Logs how the archive grows, and a summary at the end."""

    def __init__(
        self, crawler: Crawler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._crawler = crawler
        self._clock = clock
        self._loop = create_looping_call(self.log_progress)
        self._reason = ""
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._closed, signals.spider_closed)
        # The very last signal, so that the summary is the end of the log.
        crawler.signals.connect(self._stopped, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @property
    def _spider(self) -> IrowikiSpider:
        return self._crawler.spider  # type: ignore[return-value]

    def _opened(self) -> None:
        counts = Counts.read(self._spider.ledger)
        self._estimate = Estimate(self._clock(), counts.done)
        self._loop.start(EVERY, now=False)

    def log_progress(self) -> None:
        counts = Counts.read(self._spider.ledger)
        seconds = self._estimate.seconds_left(self._clock(), counts.done, counts.left)
        logger.info(
            "Archived %(counts)s; %(left)d to go, %(eta)s",
            {"counts": counts, "left": counts.left, "eta": _in_words(seconds)},
            extra={"spider": self._spider},
        )

    def _closed(self, reason: str) -> None:
        self._reason = reason
        self._loop.stop()

    def _stopped(self) -> None:
        spider = self._spider
        level, text = summary(spider, self._reason)
        logger.log(level, "%(summary)s", {"summary": text}, extra={"spider": spider})
        spider.ledger.close()


def _in_words(seconds: float | None) -> str:
    if seconds is None:
        return "time left unknown"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.2g} {unit} left"
    return f"about {seconds:.0f} s left"
