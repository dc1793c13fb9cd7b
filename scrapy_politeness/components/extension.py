"""The extension: owns the parts of one crawl, and is the API for spiders."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.extensions.telnet import update_telnet_vars

from scrapy_politeness.components.parts import Parts
from scrapy_politeness.config import rules
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.config.settings import errors_logged
from scrapy_politeness.config.table import is_enabled
from scrapy_politeness.core.cause import Block
from scrapy_politeness.http.names import public
from scrapy_politeness.observe.crawl_log import log_settings
from scrapy_politeness.observe.progress import Progress
from scrapy_politeness.observe.reporter import Reporter
from scrapy_politeness.robots.size import RobotsDownload
from scrapy_politeness.storage.job import reject_job_of_others

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self

    from scrapy_politeness.core.health import Status
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.metrics import Metrics


# The finish reason of a crawl that has nothing left but hosts that do not want it.
_BLOCKED = "politeness_blocked"


def parts_of(crawler: Crawler, component: str) -> Parts:
    extension = crawler.get_extension(PolitenessExtension)
    if extension is None:
        raise ValueError(
            f"{component} needs scrapy_politeness.PolitenessExtension in EXTENSIONS, "
            "and POLITENESS_ENABLED; scrapy_politeness.Addon in ADDONS installs both"
        )
    return extension.parts


def parts_if_enabled(crawler: Crawler, component: str) -> Parts:
    """For middlewares, which Scrapy leaves out where the add-on is disabled."""
    if not is_enabled(crawler.settings):
        raise NotConfigured
    return parts_of(crawler, component)


class PolitenessExtension:
    """Spiders and the other components find it through ``crawler.get_extension``.

    For spiders there are ``set_rate``, ``hold``, ``release``, ``reset``, ``refuse``,
    ``status`` and ``census``; a slot is named by its host, or as ``politeness_slot`` or
    ``download_slot`` name it. In the telnet console it is called ``politeness``.
    """

    def __init__(self, crawler: Crawler) -> None:
        if not is_enabled(crawler.settings):
            raise NotConfigured
        reject_job_of_others(crawler.settings)
        self.policy = Policy.read(crawler.settings, crawler.spider)
        self.parts = Parts(self.policy, crawler)
        self._is_blocked = False
        self._progress = Progress(self.policy, self.census, crawler.spider)
        self._metrics = self._open_metrics(crawler.spider)
        self._reporter: Reporter | None = None
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_idle, signals.spider_idle)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)
        if self.policy.robots:
            self._download = RobotsDownload(crawler.spider)
            crawler.signals.connect(
                self._download.bytes_received, signals.bytes_received
            )
        if self.policy.counts_bytes:
            crawler.signals.connect(self.parts.bytes_received, signals.bytes_received)
        crawler.signals.connect(self._telnet_opened, update_telnet_vars)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with errors_logged(crawler.spider):
            return cls(crawler)

    def set_rate(self, slot_key: str, rate: float) -> None:
        """Replace the slot's own limits by this many requests per second; the host or
        its robots.txt may still ask for fewer."""
        rate = rules.checked("rate", rate, rules.positive)
        slot = self._limited(slot_key)
        self.parts.registry.set_rate(slot.key, rate)
        self.parts.events.reconfigured(slot, rate)
        slot.announce()

    def hold(self, slot_key: str, seconds: float) -> None:
        """Send nothing for that time; of several holds, the latest end counts."""
        seconds = rules.checked("seconds", seconds, rules.not_negative)
        slot = self._limited(slot_key)
        if slot.block(Block.HOLD, time.monotonic() + seconds):
            self.parts.events.held(slot, seconds)

    def release(self, slot_key: str) -> None:
        """End a hold. A pause that the host asked for goes on."""
        slot = self._limited(slot_key)
        if slot.unblock(Block.HOLD):
            self.parts.events.resumed(slot)

    def reset(self, slot_key: str) -> None:
        """Return to the settings, and forget all that was learned about the host,
        including its pause."""
        slot = self._limited(slot_key)
        was_paused = self.parts.feedback.forget(slot)
        self.parts.events.reconfigured(slot, None)
        if was_paused:
            self.parts.events.resumed(slot)

    def refuse(
        self, response: Response, wait: float | None = None, welcome: bool = True
    ) -> bool:
        """For callbacks: the response is none, since its host refuses us. If we were
        too fast, pause, for ``wait`` seconds if they are known; if we are not
        ``welcome``, stop. Return whether the page will be requested again."""
        if wait is not None:
            wait = rules.checked("wait", wait, rules.not_negative)
        request = response.request
        slot = None if request is None else self.parts.registry.slot_for(request)
        if slot is None:
            where = public(response.url)
            raise ValueError(f"{where} is exempt, or its rate is 0: nothing limits it")
        if not welcome:
            self.parts.rescheduler.stop(response, slot)
            return False
        return self.parts.rescheduler.refuse(response, slot, wait)

    def status(self, slot_key: str) -> Status:
        return self._limited(slot_key).status(time.monotonic())

    def census(self, max_age: float = 0.0) -> Census:
        """Return figures of the crawl, at most ``max_age`` seconds old."""
        return self.parts.census_taker.census(max_age)

    def _limited(self, slot_key: str) -> Slot:
        key = rules.checked("slot", slot_key, rules.one_slot)
        slot = None if self.policy.is_exempt(key) else self.parts.registry.slot(key)
        if slot is None:
            raise ValueError(
                f"{slot_key!r} is exempt, or its rate is 0: nothing limits it"
            )
        return slot

    def _spider_opened(self, spider: Spider) -> None:
        log_settings(self.policy, spider, by_queue=bool(self.parts.queues))
        if self.parts.sampler is not None:
            tallies, sampler = self.parts.census_taker.tallies, self.parts.sampler
            self._reporter = Reporter(
                self.policy, self.census, tallies, sampler, spider
            )
            self._reporter.start()
        self.parts.sharing.start()
        self._progress.start()
        if self._metrics is not None:
            self._metrics.start()

    def _spider_idle(self) -> None:
        if self.parts.dead_hosts.has_stopped:
            raise CloseSpider(_BLOCKED)

    def _engine_stopped(self) -> None:
        if self._is_blocked:
            self.parts.engine.fail_command()

    async def _spider_closed(self, spider: Spider, reason: str) -> None:
        self._is_blocked = reason == _BLOCKED
        parts = self.parts
        parts.stop()
        await parts.wait_stopped()
        census = self.census()
        parts.events.closed(census)
        if self._reporter is not None:
            await self._reporter.close(reason)
        self._progress.stop()
        if self._metrics is not None:
            await self._metrics.close()

    def _open_metrics(self, spider: Spider | None) -> Metrics | None:
        if self.policy.prometheus_port is None:
            return None
        # prometheus_client is an optional dependency.
        from scrapy_politeness.observe.metrics import Metrics

        waits = self.parts.census_taker.tallies.waits
        return Metrics(self.policy, self.census, waits, spider)

    def _telnet_opened(self, telnet_vars: dict[str, Any]) -> None:
        telnet_vars["politeness"] = self
