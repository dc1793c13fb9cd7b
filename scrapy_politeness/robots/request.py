"""Which requests are for a robots.txt, and how one is asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.httpobj import urlparse_cached

from scrapy_politeness.core.outcome import TOO_MANY_REQUESTS, Outcome, Verdict
from scrapy_politeness.robots.rules import MAX_SIZE

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from scrapy_politeness.core.slot import Slot

# Scrapy's robots middleware asks for robots.txt with this priority.
_PRIORITY = 1000

# Marks the requests of this package, which repeats them itself, with their number.
OWN_FETCH = "_politeness_robots"

# Where Scrapy alone reads it, a robots.txt that is refused is requested a few times
# more; pages are not held back for hours.
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


def refusals_of(slot: Slot, codes: AbstractSet[int]) -> AbstractSet[int]:
    """Return which status codes of a robots.txt mean "too fast": a host that cannot
    even serve that is asked more slowly."""
    never_served = slot.serving.sent_at == -math.inf
    return codes | SERVER_ERRORS if never_served else codes


def judged(request: Request, outcome: Outcome) -> Outcome:
    """Return what the answer to a request for robots.txt means for its host. That this
    one file fails again and again says nothing about the rate."""
    is_repeated = request.meta.get(OWN_FETCH, 1) > 1
    is_explicit = outcome.reason.startswith(TOO_MANY_REQUESTS)
    if is_repeated and outcome.verdict.is_overload and not is_explicit:
        return outcome._replace(verdict=Verdict.FAILED)
    return outcome


def site_of(request: Request) -> str:
    url = urlparse_cached(request)
    return f"{url.scheme}://{url.netloc}"


def other_scheme(site: str) -> str:
    """Return the same host by HTTPS instead of HTTP, or the reverse."""
    scheme, _, host = site.partition("://")
    return f"{'http' if scheme == 'https' else 'https'}://{host}"


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
