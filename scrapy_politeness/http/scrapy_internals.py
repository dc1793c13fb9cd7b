"""The one door to Scrapy's internals: the engine, the downloader, its slots."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from functools import cached_property, lru_cache, partial
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult

from scrapy import signals
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.utils import _compression
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet import defer
from twisted.internet.threads import deferToThread

from scrapy_politeness.http.throttler import HAS_THROTTLER, scopes_of, slot_of_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, KeysView

    from scrapy import Request
    from scrapy.core.downloader import Downloader
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_T = TypeVar("_T")

# Scrapy reads the source of each callback, and remembers what it found there only as
# long as that very method object exists, which as a rule is as long as its request. So
# all requests with the same method of the spider share one object, of at most this many
# methods.
_MOST_METHODS = 100

_SLOT = "download_slot"
# Marks a slot that the downloader itself wrote into a request's meta. A redirect or a
# copied ``response.meta`` carries that to other hosts (Scrapy issue 2141); a slot that
# the user chose has no such mark, and stays.
_STAMP = "_politeness_stamp"
# The same two of a Scrapy with a throttler: what the user chose, and its own mark.
_SCOPES = "throttling_scopes"
_SCRAPYS_STAMP = "_throttler_stamped_download_slot"


# Where HttpProxyMiddleware puts the credentials from the proxy's URL.
_PROXY_CREDENTIALS = "Proxy-Authorization"

# Requests to no host at all, such as a malformed URL, are limited together.
NO_HOST = ""

# "example.org." is "example.org"; a dot must not get round its limits.
_ROOT = "."

# Schemes without a server.
_LOCAL_SCHEMES = frozenset({"data", "file"})


class Engine:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._methods: dict[Any, MethodType] = {}

    @cached_property
    def _downloader(self) -> Downloader:
        return self._crawler.engine.downloader  # type: ignore[union-attr,unused-ignore]

    @property
    def is_closing(self) -> bool:
        slot = self._crawler.engine._slot  # type: ignore[union-attr,unused-ignore]
        return slot is None or slot.closing is not None

    def in_progress(self) -> Collection[Request]:
        """Return what the engine works on, each until its callback has ended."""
        slot = self._crawler.engine._slot  # type: ignore[union-attr,unused-ignore]
        return () if slot is None else slot.inprogress

    def when_done(self, note: Callable[[Request], None]) -> bool:
        """Have ``note`` called with each request when it leaves what is in progress,
        for which Scrapy has no signal. Return whether that is possible."""
        slot = self._crawler.engine._slot  # type: ignore[union-attr,unused-ignore]
        remove = getattr(slot, "remove_request", None)
        if slot is None or remove is None:
            return False

        def remove_request(request: Request) -> None:
            note(request)
            remove(request)

        slot.remove_request = remove_request  # type: ignore[method-assign]
        return True

    def wake(self) -> None:
        """Make the engine ask the scheduler for requests."""
        slot = self._crawler.engine._slot  # type: ignore[union-attr,unused-ignore]
        if slot is not None and slot.closing is None:
            slot.nextcall.schedule()

    def make_room(self, places: int) -> None:
        """Raise CONCURRENT_REQUESTS by the number of requests that the downloader has,
        but that wait."""
        downloader = self._downloader
        if downloader.total_concurrency:  # 0 is no limit
            downloader.total_concurrency += places
        if places > 0:
            self.wake()

    def waits_for_robots_txt(self, request: Request) -> bool:
        """Tell whether Scrapy's own robots middleware is going to wait for the
        robots.txt of the request's host."""
        if request.meta.get("dont_obey_robotstxt") or is_local(request):
            return False
        middleware = self._crawler.get_downloader_middleware(RobotsTxtMiddleware)
        parsers = getattr(middleware, "_parsers", None)
        if parsers is None:
            return False
        try:
            netloc = urlparse_cached(request).netloc
        except ValueError:
            return False
        return netloc not in parsers or isinstance(parsers[netloc], defer.Deferred)

    def count_robots_txt(self, response: Response | None) -> None:
        """Count a request for robots.txt as Scrapy's own robots middleware does."""
        stats = self._crawler.stats
        assert stats is not None
        stats.inc_value("robotstxt/request_count")
        if response is not None:
            stats.inc_value("robotstxt/response_count")
            stats.inc_value(f"robotstxt/response_status_count/{response.status}")

    async def teach_robots_txt(self, request: Request, rules: bytes) -> None:
        """Make Scrapy's own robots middleware obey the rules that a request for
        robots.txt has got, without a request of its own."""
        crawler = self._crawler
        middleware = crawler.get_downloader_middleware(RobotsTxtMiddleware)
        parsers = getattr(middleware, "_parsers", None)
        netloc = urlparse_cached(request).netloc
        if parsers is None or isinstance(parsers.get(netloc), defer.Deferred):
            return
        kind = load_object(crawler.settings["ROBOTSTXT_PARSER"])
        parsers[netloc] = build_from_crawler(kind, crawler, rules)
        # Added in 2.18.
        signal = getattr(signals, "robots_parsed", None)
        if signal is not None:
            await crawler.signals.send_catch_log_async(
                signal, robotparser=parsers[netloc], request=request
            )

    def slot_name(self, request: Request) -> tuple[str, bool]:
        """Return the downloader's name for the slot of a request, and whether that is
        its host, rather than an address or a name that the user chose."""
        meta = request.meta
        _drop_stale_slot(meta)
        if (chosen := chosen_slot(meta)) is not None:
            return chosen, False
        host = host_of(request)
        try:
            if self.names_by_address:
                return self._downloader.get_slot_key(request), False
            scopes = scopes_of(self._crawler, request)
        except ValueError:
            return NO_HOST, not self.names_by_address
        if scopes is None or scopes in (host, host + _ROOT):
            return host, True
        return slot_of_scopes(scopes), False

    @staticmethod
    def has_chosen_slot(request: Request) -> bool:
        """Tell whether the user named the downloader's slot of a request, for which
        ``slot_name`` was called."""
        return chosen_slot(request.meta) is not None

    @property
    def names_by_address(self) -> bool:
        """Tell whether slots are addresses, which are not known at first."""
        return bool(getattr(self._downloader, "ip_concurrency", 0))

    def has_all(self, requests: KeysView[Request]) -> bool:
        """Tell whether the downloader has all of these."""
        return requests <= self._downloader.active

    def is_under_way(self, request: Request) -> bool:
        """Tell whether the downloader or one of its middlewares has this request."""
        downloader = self._downloader
        if request in downloader.active:
            return True
        # A transfer goes on after its caller was cancelled.
        if HAS_THROTTLER:
            return request in downloader._in_download_handler  # type: ignore[attr-defined,no-any-return,unused-ignore]
        slot = downloader.slots.get(request.meta.get(_SLOT, ""))
        return slot is not None and request in slot.transferring

    def stamp(self, request: Request, key: str) -> None:
        """Name the slot before the downloader does, whose name would pass for the
        user's choice afterwards."""
        meta = request.meta
        if _SLOT not in meta and not HAS_THROTTLER:
            meta[_STAMP] = meta[_SLOT] = key

    def take_over(self, request: Request, key: str, concurrency: int) -> None:
        """Leave the pacing of this request to the gate. Done for every request, since
        the downloader forgets idle slots and recreates them with DOWNLOAD_DELAY."""
        self._share_callback(request)
        if HAS_THROTTLER:
            return  # it has nothing that would delay
        meta, downloader = request.meta, self._downloader
        if _SLOT not in meta:
            meta[_STAMP] = meta[_SLOT] = key
        slot = downloader.slots.get(meta[_SLOT])
        if slot is None:
            _, slot = downloader._get_slot(request)
        slot.delay = 0
        slot.concurrency = concurrency

    def _share_callback(self, request: Request) -> None:
        callback = request.callback
        if (
            type(callback) is MethodType
            and callback.__self__ is self._crawler.spider
            and len(self._methods) < _MOST_METHODS
        ):
            request.callback = self._methods.setdefault(callback.__func__, callback)

    async def resolve(self, host: str) -> str | None:
        """Return an address of the host; None if it has none."""
        try:
            return await in_thread(partial(socket.gethostbyname, host))
        except (OSError, UnicodeError):  # which the download will report
            return None

    def schedule(self, request: Request) -> None:
        """Give the scheduler a request, as if the spider had yielded it."""
        self._crawler.engine.crawl(request)  # type: ignore[union-attr,unused-ignore]

    def fail_command(self) -> None:
        """Make Scrapy's commands exit with 1, once the engine has stopped: they do so
        if the crawler has no spider. For code that runs crawls itself, it stays."""
        if "scrapy.cmdline" in sys.modules:
            self._crawler.spider = None

    async def download(self, request: Request) -> Response:
        """Fetch a request past the scheduler, through all middlewares."""
        return await self._crawler.engine.download_async(request)  # type: ignore[union-attr,unused-ignore]


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run blocking code, under any reactor and with none."""
    if is_asyncio_available():
        return await asyncio.get_running_loop().run_in_executor(None, work)
    return await deferToThread(work)


def host_of(message: Request | Response) -> str:
    try:
        return _host_in(urlparse_cached(message).netloc)
    except ValueError:
        return NO_HOST


# Needed several times for each page.
@lru_cache(maxsize=4096)
def _host_in(netloc: str) -> str:
    host = SplitResult("", netloc, "", "", "").hostname
    return (host or NO_HOST).removesuffix(_ROOT)


def proxy_of(request: Request) -> str:
    """Return host and port of the request's proxy; "" for none."""
    proxy = request.meta.get("proxy")
    # The rest of the URL may be secret.
    address = str(proxy or "").rpartition("@")[2].rpartition("//")[2]
    return re.split("[/?#]", address, maxsplit=1)[0].lower()


def go_the_same_way(request: Request, other: Request) -> None:
    """Send a request through the proxy that another one goes through."""
    if "proxy" in other.meta:
        request.meta["proxy"] = other.meta["proxy"]
        credentials = other.headers.get(_PROXY_CREDENTIALS)
        if credentials is not None:
            request.headers[_PROXY_CREDENTIALS] = credentials


def unpacker(name: str) -> Any:
    """Return the module that Scrapy unpacks bodies with, None where it has none."""
    return getattr(_compression, name, None)


def is_local(request: Request) -> bool:
    return request.url.partition(":")[0] in _LOCAL_SCHEMES


def _drop_stale_slot(meta: dict[str, Any]) -> None:
    if _SLOT not in meta:
        return
    for name in (_STAMP, _SCRAPYS_STAMP):
        stamp = meta.get(name)
        if stamp is not None and meta.get(_SLOT) == stamp:
            del meta[_SLOT], meta[name]


def chosen_slot(meta: dict[str, Any]) -> str | None:
    """Return the slot that the user or a middleware named, after
    ``_drop_stale_slot``."""
    scopes = meta.get(_SCOPES)
    return meta.get(_SLOT) if scopes is None else slot_of_scopes(scopes)
