"""Which requests are for a robots.txt, and how one is asked for."""

from __future__ import annotations

from scrapy import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.httpobj import urlparse_cached

from scrapy_politeness.robots.rules import MAX_SIZE

# Scrapy's robots middleware asks for robots.txt with this priority.
_PRIORITY = 1000

# Marks the requests of this package, which repeats them itself.
OWN_FETCH = "_politeness_robots"

# A host that cannot even serve its robots.txt is asked a few times, ever more slowly;
# its pages are not held back for hours.
MAX_RESCHEDULES = 3
SERVER_ERRORS = frozenset(range(500, 600))

_SIZE_LIMIT = "download_maxsize"
# A compressed file that gets larger than this is not a robots.txt.
_MAX_UNPACKED = 20 * MAX_SIZE


def robots_site(request: Request) -> str | None:
    """Return whose robots.txt this request fetches, perhaps after a redirect."""
    if (
        request.callback is not NO_CALLBACK
        or request.meta.get("dont_obey_robotstxt") is not True
    ):
        return None
    urls = request.meta.get("redirect_urls") or [request.url]
    site, _, name = urls[0].rpartition("/")
    return site if name == "robots.txt" and site.count("/") == 2 else None


def robots_request(site: str, *marks: str) -> Request:
    """``marks`` are set to True in its meta."""
    return Request(
        f"{site}/robots.txt",
        callback=NO_CALLBACK,
        priority=_PRIORITY,
        # The rules of a host outside allowed_domains hold, too, where it is crawled.
        meta=dict.fromkeys(("dont_obey_robotstxt", "allow_offsite", *marks), True),
    )


def site_of(request: Request) -> str:
    url = urlparse_cached(request)
    return f"{url.scheme}://{url.netloc}"


def limit_unpacking(request: Request) -> None:
    """Only after the download: a file of that size would not be downloaded at all."""
    if robots_site(request) is not None:
        request.meta.setdefault(_SIZE_LIMIT, _MAX_UNPACKED)


def unlimit_download(request: Request) -> None:
    """A redirect or a repeated request has the limit in its meta."""
    if (
        request.meta.get(_SIZE_LIMIT) == _MAX_UNPACKED
        and robots_site(request) is not None
    ):
        del request.meta[_SIZE_LIMIT]
