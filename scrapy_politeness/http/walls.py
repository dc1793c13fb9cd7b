"""Responses that stand in for the page that was asked for: challenges, block pages.

A wall that is taken for a page costs one page, but a page that is taken for a wall may
cost a whole host. So the rules in here are for what cannot be anything else: headers
that are sent with a challenge alone, and a 403 that speaks of a rate limit. For all
others there are the user's own rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from scrapy_politeness.config.refusals import Meaning
from scrapy_politeness.http.body import text_of
from scrapy_politeness.http.scrapy_internals import host_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.http import Response

    from scrapy_politeness.config.refusals import Rule

_FORBIDDEN = 403


class Wall(NamedTuple):
    """A challenge has no meaning yet: it may be for those who are too fast, or for all
    crawlers."""

    reason: str
    means: Meaning | None = None
    wait: float | None = None


# As Scrapy writes them, with the values that mean it, and what. Cloudflare and AWS
# document theirs for this very purpose.
_HEADERS = {
    b"Cf-Mitigated": {"challenge": Wall("a challenge by Cloudflare")},
    b"X-Amzn-Waf-Action": {
        "challenge": Wall("a challenge by AWS WAF"),
        "captcha": Wall("a captcha by AWS WAF"),
    },
    b"X-Vercel-Mitigated": {"challenge": Wall("a challenge by Vercel")},
    b"Crawler-Error": {
        "crawlerforbidden": Wall(
            "Cloudflare says that the site's owner has blocked this crawler",
            Meaning.NOT_WELCOME,
        )
    },
}

# As GitHub does for its secondary limit, at times without any header that says so.
_RATE_LIMIT = re.compile(
    r"secondary rate limit|abuse detection mechanism|too many requests"
    r"|\brate[- ]limit (?:was |has been )?(?:exceeded|reached)"
    r"|\b(?:exceeded|reached|hit) (?:an?|the|your|our|its) (?:[\w-]+ ){0,2}"
    r"rate[- ]limit",
    re.IGNORECASE,
)


# A part of each of their names.
_NAME_PARTS = re.compile(b"-Mitigated|-Waf-Action|Crawler-Error")


def wall_of(response: Response, names: bytes, rules: Sequence[Rule]) -> Wall | None:
    """``names`` are those of all headers. The rules are the user's, and come first."""
    for rule in rules:
        if _applies(rule, response):
            reason = f"{response.status}, by {rule.name} of POLITENESS_REFUSALS"
            return Wall(reason, rule.means, rule.wait)
    if _NAME_PARTS.search(names):
        for name, walls in _HEADERS.items():
            value = (response.headers.get(name) or b"").decode("latin-1")
            if (wall := walls.get(value.strip().lower())) is not None:
                return wall
    if response.status == _FORBIDDEN and _RATE_LIMIT.search(text_of(response)):
        return Wall("403 Forbidden, which speaks of a rate limit", Meaning.TOO_FAST)
    return None


def _applies(rule: Rule, response: Response) -> bool:
    """The cheapest conditions come first."""
    if rule.status is not None and response.status not in rule.status:
        return False
    if not rule.is_for(host_of(response)):
        return False
    if rule.url is not None and not rule.url.search(response.url):
        return False
    if rule.header is not None and not _has_header(rule, response):
        return False
    if rule.redirect is not None and not rule.redirect.search(_target(response)):
        return False
    return rule.body is None or bool(rule.body.search(text_of(response)))


def _has_header(rule: Rule, response: Response) -> bool:
    assert rule.header is not None
    name, pattern = rule.header
    values = response.headers.getlist(name)
    return any(pattern.search(value.decode("latin-1")) for value in values)


def _target(response: Response) -> str:
    """Return where a response redirects to; "" if it does not."""
    location = response.headers.get("Location")
    if location is None or not 300 <= response.status < 400:
        return ""
    text = location.decode("latin-1").strip()
    try:
        return urljoin(response.url, text)
    except ValueError:
        return text
