"""What robots.txt asks of a crawler's speed: Crawl-delay and Request-rate.

Every robots.txt that the crawl receives is read here, whoever asked for it, so
Scrapy's own robots middleware and this package share one download. Where nobody has
asked for it yet, it is fetched before the first request to its host.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING

from protego import Protego
from scrapy import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.python import to_unicode
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.http import Response

    from scrapy_politeness.engine import Engine
    from scrapy_politeness.policy import Policy

logger = logging.getLogger(__name__)

# RFC 9309 asks crawlers to read at least 500 KiB, and lets them stop there.
_MAX_SIZE = 500 * 1024
# A file that is larger than this is not a robots.txt.
_MAX_DOWNLOAD = 20 * _MAX_SIZE
# Scrapy's robots middleware asks for robots.txt with this priority.
_PRIORITY = 1000

_SPEED_LINE = re.compile(r"^\s*(?:crawl-delay|request-rate)\s*:[^#\n]*", re.I | re.M)


def is_robots_txt(request: Request) -> bool:
    return request.url.endswith("/robots.txt") and (
        request.meta.get("dont_obey_robotstxt", False) is True
    )


class Robots:
    """``obey`` is called with a request to the host and the seconds to keep."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        obey: Callable[[Request, float], None],
        spider: Spider | None,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._obey = obey
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        # Per site: who waits for its robots.txt; None once it has been asked for.
        self._sites: dict[str, list[Deferred[None]] | None] = {}

    def note_request(self, request: Request) -> None:
        """Somebody asks for robots.txt: nobody else needs to."""
        self._sites.setdefault(_site(request), None)

    async def ensure(self, request: Request) -> None:
        """Return when the rules of the request's host are known, or cannot be."""
        site = _site(request)
        if site not in self._sites:
            await self._fetch_for_all(site)
        elif (waiting := self._sites[site]) is not None:
            turn: Deferred[None] = Deferred()
            waiting.append(turn)
            await maybe_deferred_to_future(turn)

    async def _fetch_for_all(self, site: str) -> None:
        waiting: list[Deferred[None]] = []
        self._sites[site] = waiting
        try:
            await self._fetch(site)
        finally:
            self._sites[site] = None
            for turn in waiting:
                turn.callback(None)

    async def _fetch(self, site: str) -> None:
        request = Request(
            f"{site}/robots.txt",
            callback=NO_CALLBACK,
            priority=_PRIORITY,
            meta={"dont_obey_robotstxt": True, "download_maxsize": _MAX_DOWNLOAD},
        )
        try:
            await self._engine.download(request)
        except Exception as error:  # whatever a download may raise
            self._log.info(
                "No robots.txt from %(site)s: %(error)s: %(text)s",
                {"site": site, "error": type(error).__name__, "text": error},
            )

    def response_received(self, response: Response, request: Request) -> None:
        if not is_robots_txt(request) or response.status >= 400:
            return
        urls = request.meta.get("redirect_urls") or [request.url]
        origin = request.replace(url=urls[0], meta={})
        text = response.body[:_MAX_SIZE].decode("utf-8", errors="replace")
        delay = self._delay(text, self._user_agent(request), _site(origin))
        if delay is not None:
            self._obey(origin, delay)

    def _user_agent(self, request: Request) -> str:
        if self._policy.robots_user_agent:
            return self._policy.robots_user_agent
        return to_unicode(request.headers.get("User-Agent") or self._policy.user_agent)

    def _delay(self, text: str, agent: str, site: str) -> float | None:
        self._warn_of_nonsense(text, site)
        asked = _asked_delay(text, agent)
        longest = self._policy.robots_max_delay
        if asked is not None and asked > longest:
            self._log.warning(
                "robots.txt of %(site)s asks for %(asked).6g s between requests; "
                "POLITENESS_ROBOTS_MAX_DELAY makes it %(longest).6g s",
                {"site": site, "asked": asked, "longest": longest},
            )
            return longest
        return asked

    def _warn_of_nonsense(self, text: str, site: str) -> None:
        for match in _SPEED_LINE.finditer(text):
            line = match.group().strip()
            if _asked_delay(f"User-agent: *\n{line}", "*") is None:
                self._log.warning(
                    "robots.txt of %(site)s says %(line)r, which makes no sense and "
                    "is ignored",
                    {"site": site, "line": line[:100]},
                )
                return  # one warning per site is enough


def _asked_delay(text: str, agent: str) -> float | None:
    """Return the longer of Crawl-delay and Request-rate, as seconds per request."""
    rules = Protego.parse(text)
    rate = rules.request_rate(agent)
    delays = [rules.crawl_delay(agent)]
    if rate is not None and rate.requests > 0:
        delays.append(rate.seconds / rate.requests)
    # Older releases of Protego let nan, inf and negative numbers through.
    return max((d for d in delays if d is not None and 0 <= d < math.inf), default=None)


def _site(request: Request) -> str:
    url = urlparse_cached(request)
    return f"{url.scheme}://{url.netloc}"
