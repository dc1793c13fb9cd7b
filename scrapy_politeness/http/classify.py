"""Turns a response or an exception into an Outcome."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from scrapy_politeness.config.refusals import Meaning
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.http.download_errors import (
    NEVER_SENT,
    OUR_OWN_DOING,
    asks_for_calm,
    is_connection_failure,
    is_proxy_failure,
    is_timeout,
)
from scrapy_politeness.http.quota_headers import read_quota
from scrapy_politeness.http.retry_after import retry_after
from scrapy_politeness.http.scrapy_internals import proxy_of
from scrapy_politeness.http.walls import wall_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_politeness.config.refusals import Rule
    from scrapy_politeness.core.quota import Quota
    from scrapy_politeness.http.walls import Wall

# MediaWiki refuses with HTTP 200 and names the reason in this header. For a database
# that lags behind, or a wiki that is read-only for a while, we wait, but a lower rate
# would not help.
_MEDIAWIKI_ERROR = b"Mediawiki-Api-Error"
_MEDIAWIKI_REFUSALS = {
    "maxlag": Verdict.BUSY,
    "ratelimited": Verdict.REFUSED,
    "readonly": Verdict.BUSY,
}

# A proxy in front of the host has waited for it in vain: Gateway Timeout, and the two
# that Cloudflare has for the same. Without it, we would have seen a timeout.
_TIMEOUTS_BEHIND = frozenset({504, 522, 524})

# A gateway that cannot reach the server: Bad Gateway, and Cloudflare's own codes.
_NOBODY_BEHIND = frozenset({502, 520, 521, 523, 525, 526, 527, 530})

# Firewalls forbid what is too fast (403), a busy server finds its clients slow (408),
# 420 is "Enhance Your Calm", and 402 asks a crawler for money. None is certain to be
# about the rate, but none is a reason to go faster.
_FORBIDDEN = 403
_DOUBTFUL = frozenset({402, _FORBIDDEN, 408, 420})

_PROXY_AUTHENTICATION = 407


def classify_response(
    response: Response,
    http_codes: AbstractSet[int],
    wall_now: float,
    rules: Sequence[Rule] = (),
    *,
    is_page: bool = True,
) -> Outcome:
    """``rules`` are the user's. ``is_page`` is False for a robots.txt."""
    # Most hosts say nothing of the kind: a look at the names, which Scrapy writes as
    # "X-Ratelimit-Reset", is cheaper than asking for each of them.
    names = b" ".join(response.headers)
    quota = None
    if b"Rate" in names:
        quota = read_quota(partial(_header, response), wall_now=wall_now)
    wall = wall_of(response, names, rules) if is_page else None
    if wall is not None and wall.means is not Meaning.PAGE:
        return _outcome_of(wall, _retry_after(response, wall_now), quota)
    refusal = _refusal(response, http_codes, quota)
    if refusal is None and _MEDIAWIKI_ERROR in names:
        refusal = _mediawiki_refusal(response)
    if refusal is not None:
        return Outcome(*refusal, _retry_after(response, wall_now), quota)
    status = response.status
    if 300 <= status < 400:
        wait = _retry_after(response, wall_now)
        return Outcome(Verdict.SERVED, "redirect", wait, is_page=False)
    if status == _PROXY_AUTHENTICATION:
        return Outcome(Verdict.IGNORED, status_text(status))
    if status >= 500 or status in _DOUBTFUL:
        verdict = Verdict.FAILED
        if status in _TIMEOUTS_BEHIND:
            verdict = Verdict.TIMED_OUT
        elif status in _NOBODY_BEHIND:
            verdict = Verdict.UNREACHABLE
        wait = _retry_after(response, wall_now)
        is_bare = status == _FORBIDDEN and wait is None and wall is None and is_page
        reason = status_text(status)
        return Outcome(verdict, reason, wait, quota, may_be_wall=is_bare)
    # Some limiters send Retry-After with every answer: here it means nothing.
    return Outcome(Verdict.SERVED, quota=quota, is_page=is_page)


def classify_exception(exception: Exception, request: Request) -> Outcome:
    reason = type(exception).__name__
    if is_timeout(exception):
        return Outcome(Verdict.TIMED_OUT, "timeout")
    if isinstance(exception, (*NEVER_SENT, *OUR_OWN_DOING)):
        return Outcome(Verdict.IGNORED, reason)
    if proxy_of(request) and is_proxy_failure(exception):
        return Outcome(Verdict.IGNORED, f"{reason} of the proxy")
    if asks_for_calm(exception):
        reason = "HTTP/2 ENHANCE_YOUR_CALM"
        return Outcome(Verdict.REFUSED, reason, names_rate=True)
    if is_connection_failure(exception):
        return Outcome(Verdict.UNREACHABLE, reason)
    return Outcome(Verdict.FAILED, reason)


def _outcome_of(wall: Wall, retry_after: float | None, quota: Quota | None) -> Outcome:
    if wall.means is Meaning.NOT_WELCOME:
        return Outcome(Verdict.UNWELCOME, wall.reason)
    return Outcome(
        Verdict.REFUSED,
        wall.reason,
        wall.wait if retry_after is None else retry_after,
        quota,
        names_rate=wall.means is Meaning.TOO_FAST,
        is_challenge=wall.means is None,
    )


def _refusal(
    response: Response, http_codes: AbstractSet[int], quota: Quota | None
) -> tuple[Verdict, str] | None:
    if response.status in http_codes:
        return Verdict.REFUSED, status_text(response.status)
    # As GitHub does. A page that is forbidden for good is asked for once more.
    if response.status == _FORBIDDEN and quota is not None and quota.remaining < 1:
        return Verdict.REFUSED, f"{status_text(response.status)}, the quota is spent"
    return None


def _mediawiki_refusal(response: Response) -> tuple[Verdict, str] | None:
    error = _text(response.headers.get(_MEDIAWIKI_ERROR))
    verdict = _MEDIAWIKI_REFUSALS.get(error)
    return None if verdict is None else (verdict, f"MediaWiki {error}")


def status_text(code: int) -> str:
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _retry_after(response: Response, wall_now: float) -> float | None:
    return retry_after(
        [_text(value) for value in response.headers.getlist("Retry-After")],
        date=_text(response.headers.get("Date")),
        wall_now=wall_now,
    )


def _header(response: Response, name: str) -> str | None:
    values = response.headers.getlist(name)
    return ", ".join(map(_text, values)) if values else None


def _text(header: bytes | None) -> str:
    return (header or b"").decode("latin-1").strip()
