"""What is known of a request that goes back to the scheduler, and has to go with it.

It is plain data in one place of the request's meta, so that any queue keeps it. Meta is
copied, by redirects and by spiders that hand ``response.meta`` on: what is known of a
page is true only of that page, so its fingerprint goes with it.

``request.replace`` copies meta, but not what is in it: nothing here is ever changed,
only replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler

MARK = "_politeness"
_PAGE = "page"
_NOTHING: Mapping[str, Any] = {}


def mark(request: Request, **facts: Any) -> None:
    request.meta[MARK] = {**request.meta.get(MARK, _NOTHING), **facts}


def marks_of(request: Request) -> Mapping[str, Any]:
    found: Mapping[str, Any] = request.meta.get(MARK, _NOTHING)
    return found


def unmark(request: Request, name: str) -> None:
    marks = request.meta.pop(MARK, _NOTHING)
    left = {other: fact for other, fact in marks.items() if other != name}
    if left:
        request.meta[MARK] = left


def mark_page(crawler: Crawler, request: Request, **facts: Any) -> None:
    known = {**page_marks_of(crawler, request), **facts}
    mark(request, **{_PAGE: [_fingerprint(crawler, request), known]})


def page_marks_of(crawler: Crawler, request: Request) -> Mapping[str, Any]:
    page = marks_of(request).get(_PAGE)
    if page is None or page[0] != _fingerprint(crawler, request):
        return _NOTHING
    found: Mapping[str, Any] = page[1]
    return found


def unmark_page(request: Request) -> None:
    unmark(request, _PAGE)


def _fingerprint(crawler: Crawler, request: Request) -> str:
    assert crawler.request_fingerprinter is not None
    return crawler.request_fingerprinter.fingerprint(request).hex()
