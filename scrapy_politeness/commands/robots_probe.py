"""A crawl of one robots.txt, which finds out how a page would be crawled."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy import Request, Spider
from scrapy.settings import default_settings
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_politeness.components.addon import Addon
from scrapy_politeness.components.extension import PolitenessExtension
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.robots.request import SERVER_ERRORS, robots_request, site_of
from scrapy_politeness.robots.rules import Directives, readable
from scrapy_politeness.robots.terms import user_agent_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from collections.abc import Set as AbstractSet

    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from scrapy_politeness.components.parts import Parts
    from scrapy_politeness.config.slots import SlotPolicy
    from scrapy_politeness.core.health import Status

# Seconds. While a host is paused for longer, its robots.txt is not fetched.
_PATIENCE = 10.0
_TIMEOUT = 30.0

_STOCK = ("SCHEDULER", "DUPEFILTER_CLASS", "STATS_CLASS")

_OVERRIDES: dict[str, Any] = {
    # The project's own crawls must not be touched: their waiting requests, their
    # feeds, whatever their pipelines and extensions write.
    **{name: getattr(default_settings, name) for name in _STOCK},
    "JOBDIR": None,
    "FEEDS": {},
    "ITEM_PIPELINES": {},
    "EXTENSIONS": {},
    "SPIDER_MIDDLEWARES": {},
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "CLOSESPIDER_TIMEOUT": _PATIENCE + _TIMEOUT,
    "POLITENESS_ENABLED": True,
    "POLITENESS_PROGRESS": False,
    "POLITENESS_PROMETHEUS_PORT": None,
    "POLITENESS_REPORT": None,
    # If Redis were unreachable, the check would take long.
    "POLITENESS_REDIS_URL": None,
}


@dataclass(frozen=True)
class RobotsFile:
    """``directives`` may be obeyed or not. As in Scrapy, ``allowed`` follows from the
    body, whatever the status is."""

    url: str
    status: int | None = None
    error: str | None = None
    user_agent: str | None = None
    allowed: bool = True
    directives: Directives | None = None

    def is_unreachable(self, refusals: AbstractSet[int]) -> bool:
        """Tell that from a file that does not exist; ``refusals`` are status codes."""
        return self.error is not None or self.status in refusals | SERVER_ERRORS


@dataclass(frozen=True)
class Finding:
    """``status`` and ``policy`` are None where nothing limits the page. ``pattern`` is
    the one that made the slot, if any. The limits of ``above`` hold for it as well."""

    slot: str
    robots: RobotsFile | None
    status: Status | None
    policy: SlotPolicy | None
    pattern: str | None = None
    above: tuple[str, ...] = ()


class RobotsProbe(Spider):
    """Passes its finding to ``found``. ``look_up`` is called with the slot before the
    crawl adds to what was learned. ``like`` is the spider whose settings it uses."""

    name = "politeness-check"
    like: ClassVar[type[Spider]] = Spider
    page: str
    look_up: Callable[[str], None]
    found: Callable[[Finding], None]

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        cls.like.update_settings(settings)
        # Use the state file if there is one, but do not create it.
        path = Policy.read(settings).state_path
        state = str(path) if path is not None and path.is_file() else None
        for name, value in {**_OVERRIDES, "POLITENESS_STATE": state}.items():
            settings.set(name, value, "cmdline")
        settings.setdefault_in_component_priority_dict("ADDONS", Addon, 500)

    async def start(self) -> AsyncIterator[Any]:
        self.found(await self._find())
        return
        yield  # Scrapy wants a generator

    async def _find(self) -> Finding:
        politeness = self.crawler.get_extension(PolitenessExtension)
        assert politeness is not None
        parts = politeness.parts
        page = Request(self.page)
        key = parts.registry.key_for(page)
        self.look_up(key)
        slot = parts.registry.slot_for(page)
        if slot is None:
            return Finding(key, await self._ask(page, parts), None, None)
        robots = None
        if slot.status(time.monotonic()).paused_for <= _PATIENCE:
            robots = await self._ask(page, parts)
            parts.robots.obey(page, slot)
        status = slot.status(time.monotonic())
        name = parts.registry.names.of(page)
        found = parts.registry.names.pattern_for(page) if name.parent else None
        return Finding(
            key,
            robots,
            status,
            parts.policy.for_slot(key),
            found.pattern.pattern if found else None,
            tuple(n for n in parts.registry.parents.names_above(name) if n != key),
        )

    async def _ask(self, page: Request, parts: Parts) -> RobotsFile:
        request = robots_request(site_of(page), "dont_retry")
        request.meta["download_timeout"] = _TIMEOUT
        try:
            response = await parts.engine.download(request)
        except Exception as error:  # a download handler may raise anything
            return RobotsFile(request.url, error=f"{type(error).__name__}: {error}")
        parts.robots.learn(site_of(page), response)
        return self._read(response, user_agent_for(request, parts.policy))

    def _read(self, response: Response, agent: str) -> RobotsFile:
        parser = load_object(self.crawler.settings["ROBOTSTXT_PARSER"])
        body, directives = b"", None
        if response.status < 400:
            body = response.body
            directives = Directives.read(readable(body), agent)
        rules = build_from_crawler(parser, self.crawler, body)
        return RobotsFile(
            response.url,
            response.status,
            user_agent=agent,
            allowed=rules.allowed(self.page, agent),
            directives=directives,
        )
