"""As much of MediaWiki's API as a reader of pages needs, in ``formatversion=2``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from irowiki.demo_wiki.content import NAMESPACES, WikiPage

# What "max" means. MediaWiki says 500; a small wiki needs less to have
# something to continue.
LIST_MAX = 50
CATEGORIES_MAX = 10

FIRST_EDIT = datetime(2024, 1, 1, tzinfo=timezone.utc)

Params = Mapping[str, str]
Answer = dict[str, Any]


class ApiError(Exception):
    def __init__(self, code: str, info: str, **details: Any) -> None:
        super().__init__(f"{code}: {info}")
        self.code = code
        self.body = {"error": {"code": code, "info": info, **details}}


class MediaWikiApi:
    def __init__(self, pages: Iterable[WikiPage]) -> None:
        self._pages = dict(enumerate(pages, start=1))
        self._ids = {page.title: pageid for pageid, page in self._pages.items()}

    def answer(self, params: Params) -> Answer:
        action = params.get("action", "help")
        if action != "query":
            raise _bad_value("action", action)
        if "titles" in params:
            return self._read(params)
        if "list" in params:
            return self._list(params)
        return {"batchcomplete": True, "query": self._siteinfo(params)}

    def _siteinfo(self, params: Params) -> Answer:
        info = {
            "general": {"sitename": "Demo wiki", "generator": "MediaWiki 1.43.0"},
            "namespaces": {
                str(ns): {"id": ns, "case": "first-letter", "name": name}
                for ns, name in NAMESPACES.items()
            },
            "statistics": {"pages": len(self._pages)},
        }
        wanted = params.get("siprop", "general").split("|")
        return {name: value for name, value in info.items() if name in wanted}

    def _list(self, params: Params) -> Answer:
        if params["list"] != "allpages":
            raise _bad_value("list", params["list"])
        namespace = int(params.get("apnamespace", "0"))
        limit = _limit(params.get("aplimit", "10"), LIST_MAX)
        first = params.get("apcontinue", "")
        keys = sorted(
            (_key(page), pageid)
            for pageid, page in self._pages.items()
            if page.ns == namespace and _key(page) >= first
        )
        answer: Answer = {"batchcomplete": True}
        if len(keys) > limit:
            answer["continue"] = {"apcontinue": keys[limit][0], "continue": "-||"}
        listed = [self._identity(pageid) for _, pageid in keys[:limit]]
        return {**answer, "query": {"allpages": listed}}

    def _read(self, params: Params) -> Answer:
        titles = [_normal(title) for title in params["titles"].split("|")]
        ids = sorted(self._ids[title] for title in titles if title in self._ids)
        absent = [
            {"ns": 0, "title": title, "missing": True}
            for title in titles
            if title not in self._ids
        ]
        pages = {pageid: self._identity(pageid) for pageid in ids}
        # "||revisions" in a continuation: that property has been told in full.
        told = params.get("continue", "").rpartition("||")[2].split("|")
        props = [p for p in params.get("prop", "").split("|") if p not in told]
        if "revisions" in props:
            for pageid, page in pages.items():
                page["revisions"] = [self._revision(pageid)]
        answer: Answer = {}
        if "categories" in props:
            answer = self._add_categories(pages, params)
        if not answer:
            answer = {"batchcomplete": True}
        return {**answer, "query": {"pages": [*absent, *pages.values()]}}

    def _add_categories(self, pages: dict[int, Answer], params: Params) -> Answer:
        """Add as many categories as the limit allows; return the continuation."""
        limit = _limit(params.get("cllimit", "10"), CATEGORIES_MAX)
        pairs = [
            (pageid, name)
            for pageid in pages
            for name in sorted(self._pages[pageid].categories)
        ]
        if "clcontinue" in params:
            page, _, key = params["clcontinue"].partition("|")
            first = (int(page), key.replace("_", " "))
            pairs = [pair for pair in pairs if pair >= first]
        for pageid, name in pairs[:limit]:
            category = {"ns": 14, "title": f"Category:{name}"}
            pages[pageid].setdefault("categories", []).append(category)
        if len(pairs) <= limit:
            return {}
        pageid, name = pairs[limit]
        clcontinue = f"{pageid}|{name.replace(' ', '_')}"
        return {"continue": {"clcontinue": clcontinue, "continue": "||revisions"}}

    def _identity(self, pageid: int) -> Answer:
        page = self._pages[pageid]
        return {"pageid": pageid, "ns": page.ns, "title": page.title}

    def _revision(self, pageid: int) -> Answer:
        edited = FIRST_EDIT + timedelta(hours=pageid)
        main = {
            "contentmodel": "wikitext",
            "contentformat": "text/x-wiki",
            "content": self._pages[pageid].text,
        }
        return {
            "revid": 1000 + 3 * pageid,
            "parentid": 0,
            "timestamp": edited.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "slots": {"main": main},
        }


def _bad_value(name: str, value: str) -> ApiError:
    info = f'Unrecognized value for parameter "{name}": {value}.'
    return ApiError("badvalue", info)


def _limit(value: str, most: int) -> int:
    return most if value == "max" else min(int(value), most)


def _normal(title: str) -> str:
    title = title.replace("_", " ").strip()
    return title[:1].upper() + title[1:]


def _key(page: WikiPage) -> str:
    """The title as the database sorts it: no namespace, no spaces."""
    prefix = f"{NAMESPACES[page.ns]}:" if page.ns else ""
    return page.title.removeprefix(prefix).replace(" ", "_")
