"""MediaWiki's API: its queries, responses and errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.http import Response

Json = dict[str, Any]

FILE_NAMESPACE = 6

SITE_INFO = ("general", "namespaces", "namespacealiases", "statistics", "rightsinfo")

# With texts, "max" means 50 revisions. The newest come last, so that edits made in the
# meantime are found, too.
_PAGE = {
    "prop": "info|categories|templates|revisions",
    "cllimit": "max",
    "tllimit": "max",
    "rvprop": "ids|timestamp|user|userid|flags|comment|sha1|content",
    "rvslots": "main",
    "rvlimit": "max",
    "rvdir": "newer",
}

_ALWAYS = {"action": "query", "format": "json", "formatversion": 2}

_HIDDEN = (
    "userhidden",
    "commenthidden",
    "sha1hidden",
    "texthidden",
    "textmissing",
    "suppressed",
)


class ApiError(Exception):
    """``may_pass``: the same query may succeed later."""

    def __init__(self, code: str, info: str, *, may_pass: bool = False) -> None:
        super().__init__(f"{code}: {info}")
        self.may_pass = may_pass


class Answer(NamedTuple):
    """``rest`` is the ``continue`` object, to be sent back unchanged for the rest of
    the answer; None if there is no more."""

    query: Json
    rest: Json | None

    @property
    def pages(self) -> list[Json]:
        # There may be none: a continued answer contains only what is new.
        return self.query.get("pages", [])  # type: ignore[no-any-return]


def question(kind: str, key: str) -> Json:
    """Return what to ask about the ``site``, a ``namespace`` (its pages, redirects
    included), the ``files``, a ``page`` or a ``file``."""
    file_info = "url|sha1|size|timestamp|user|comment"
    return {
        "site": {"meta": "siteinfo", "siprop": "|".join(SITE_INFO)},
        "namespace": {"list": "allpages", "apnamespace": key, "aplimit": "max"},
        "files": {"list": "allimages", "aiprop": file_info, "ailimit": "max"},
        # One at a time: rvlimit allows no more.
        "page": {**_PAGE, "pageids": key},
        "file": {"prop": "imageinfo", "iiprop": file_info, "titles": key},
    }[kind]


def url(
    api: str, question: Mapping[str, Any], rest: Json | None = None, maxlag: str = ""
) -> str:
    lag = {"maxlag": maxlag} if maxlag else {}
    return f"{api}?{urlencode({**_ALWAYS, **lag, **question, **(rest or {})})}"


def wiki_name(api: str) -> str:
    """Return a name for a folder: https://example.org/w/api.php is example.org-w."""
    parts = urlsplit(api)
    path = parts.path.rpartition("/")[0]
    return re.sub(r"[^\w.-]+", "-", parts.netloc + path).strip("-.")


def read_answer(response: Response, asked_for: Json | None = None) -> Answer:
    """``asked_for`` is the rest that was requested. Errors may come with HTTP 200."""
    try:
        answer = json.loads(response.body)
    except ValueError:
        raise ApiError("nonsense", "not JSON", may_pass=True) from None
    if not isinstance(answer, dict):
        raise ApiError("nonsense", "not a JSON object", may_pass=True)
    if error := answer.get("error"):
        code = str(error.get("code"))
        may_pass = code.startswith("internal_api_error")
        raise ApiError(code, str(error.get("info")), may_pass=may_pass)
    rest = answer.get("continue")
    if rest is None and not answer.get("batchcomplete"):
        # Every answer of a query has one or the other.
        raise ApiError("nonsense", "neither complete nor continued")
    if rest is not None and rest == asked_for:
        # A single revision larger than the wiki's maximum response.
        raise ApiError("nonsense", "it does not advance: is the response too large?")
    return Answer(answer.get("query", {}), rest)


def merge(page: Json, part: Json) -> None:
    """Add a part to a page: lists come piece by piece."""
    for name, value in part.items():
        if isinstance(value, list):
            page.setdefault(name, []).extend(value)
        else:
            page[name] = value


def hidden_in(revision: Json) -> list[str]:
    slot = main_slot(revision)
    return [name for name in _HIDDEN if revision.get(name) or slot.get(name)]


def main_slot(revision: Json) -> Json:
    slot: Json = revision.get("slots", {}).get("main", {})
    return slot
