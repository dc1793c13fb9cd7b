"""One line in settings.py: ``ADDONS = {"scrapy_politeness.Addon": 500}``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured
from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_politeness.components.dupefilter import PoliteDupeFilter
from scrapy_politeness.components.extension import PolitenessExtension
from scrapy_politeness.components.middleware import PolitenessMiddleware
from scrapy_politeness.components.priority_queue import PolitePriorityQueue
from scrapy_politeness.components.rescheduling import RescheduleMiddleware
from scrapy_politeness.components.robots_wait import RobotsWaitMiddleware
from scrapy_politeness.config.settings import errors_logged
from scrapy_politeness.config.table import is_enabled, wants_dupefilter
from scrapy_politeness.http.throttler import polite_throttler
from scrapy_politeness.robots.size import RobotsSizeMiddleware
from scrapy_politeness.storage.job import is_kept_by_us, reject_own_job

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# After HttpCache (900), last before the downloader.
_GATE_ORDER = 950
# Between CookiesMiddleware (700) and RedirectMiddleware (600).
_RESCHEDULE_ORDER = 690
# Before RobotsTxtMiddleware (100).
_ROBOTS_WAIT_ORDER = 90
# After HttpCompression (590).
_ROBOTS_SIZE_ORDER = 580


_FILTER = "DUPEFILTER_CLASS"
_SHARED_FILTER = "scrapy_politeness.scrapy_redis.PoliteDupeFilter"
_SCRAPY_REDIS = (
    "scrapy_politeness.scrapy_redis.PoliteQueue",
    "scrapy_redis.dupefilter.RFPDupeFilter",
)
_THROTTLER = "THROTTLER"


class Addon:
    def update_settings(self, settings: BaseSettings) -> None:
        with errors_logged():
            if not is_enabled(settings):
                reject_own_job(settings)
                raise NotConfigured
            has_filter = wants_dupefilter(settings)
        for name, component, order in (
            ("DOWNLOADER_MIDDLEWARES", PolitenessMiddleware, _GATE_ORDER),
            ("DOWNLOADER_MIDDLEWARES", RescheduleMiddleware, _RESCHEDULE_ORDER),
            ("DOWNLOADER_MIDDLEWARES", RobotsWaitMiddleware, _ROBOTS_WAIT_ORDER),
            ("DOWNLOADER_MIDDLEWARES", RobotsSizeMiddleware, _ROBOTS_SIZE_ORDER),
            ("EXTENSIONS", PolitenessExtension, 0),
        ):
            settings.setdefault_in_component_priority_dict(name, component, order)
        settings.set("SCHEDULER_PRIORITY_QUEUE", PolitePriorityQueue, "addon")
        throttler = polite_throttler()
        if throttler is not None and not _is_set(settings, _THROTTLER):
            settings.set(_THROTTLER, throttler, "addon")
        # Not where the user, or another add-on, has chosen one.
        if has_filter and is_kept_by_us(settings) and not _is_set(settings, _FILTER):
            settings.set(_FILTER, PoliteDupeFilter, "addon")
        elif has_filter and _uses_scrapy_redis(settings):
            settings.set(_FILTER, _SHARED_FILTER, settings.getpriority(_FILTER) or 0)


def _uses_scrapy_redis(settings: BaseSettings) -> bool:
    """Tell whether there is our queue, and the filter that belongs to scrapy-redis."""
    return (settings["SCHEDULER_QUEUE_CLASS"], settings[_FILTER]) == _SCRAPY_REDIS


def _is_set(settings: BaseSettings, name: str) -> bool:
    return (settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["default"]
