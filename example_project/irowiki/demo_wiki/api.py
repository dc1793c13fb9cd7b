"""As much of MediaWiki's API as an archiver needs, in ``formatversion=2``."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from irowiki.demo_wiki.content import CONTENT_NAMESPACES, NAMESPACES, WikiPage
from irowiki.demo_wiki.history import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from irowiki.demo_wiki.files import WikiFile

# What "max" means. MediaWiki says 500 for the first two; a small wiki needs less to
# have something to continue.
LIST_MAX = 20
LINKS_MAX = 10
REVISIONS_MAX = 50
TITLES_MAX = 50

Answer = dict[str, Any]


class ApiError(Exception):
    def __init__(self, code: str, info: str, **details: Any) -> None:
        super().__init__(f"{code}: {info}")
        self.code = code
        self.body = {"error": {"code": code, "info": info, **details}}


class MediaWikiApi:
    """``files_url`` is where the files are, without the path of each."""

    def __init__(
        self,
        pages: Iterable[WikiPage],
        files: Iterable[WikiFile],
        files_url: str,
    ) -> None:
        self._files = sorted(files, key=lambda file: file.name)
        self._files_url = files_url
        self._pages = dict(enumerate(pages, start=1))
        self._ids = {page.title: pageid for pageid, page in self._pages.items()}
        # By namespace: keys and ids in the order of the keys.
        self._order: dict[int, list[tuple[str, int]]] = {ns: [] for ns in NAMESPACES}
        for pageid, page in self._pages.items():
            self._order[page.ns].append((_key(page), pageid))
        for keys in self._order.values():
            keys.sort()

    def answer(self, params: Mapping[str, str]) -> Answer:
        action = params.get("action", "help")
        if action != "query":
            raise _bad_value("action", action)
        if "titles" in params or "pageids" in params:
            return self._read(params)
        if "list" in params:
            return self._list(params)
        return {"batchcomplete": True, "query": self._siteinfo(params)}

    def _siteinfo(self, params: Mapping[str, str]) -> Answer:
        info = {
            "general": {"sitename": "Demo wiki", "generator": "MediaWiki 1.43.0"},
            "namespaces": {
                str(ns): {
                    "id": ns,
                    "case": "first-letter",
                    "name": name,
                    "content": ns in CONTENT_NAMESPACES,
                }
                for ns, name in NAMESPACES.items()
            },
            "namespacealiases": [{"id": 6, "alias": "Image"}],
            "statistics": self._statistics(),
            "rightsinfo": {"url": "", "text": "Public domain"},
        }
        wanted = params.get("siprop", "general").split("|")
        return {name: value for name, value in info.items() if name in wanted}

    def _statistics(self) -> Answer:
        pages = self._pages.values()
        return {
            "pages": len(self._pages),
            "articles": sum(
                page.ns in CONTENT_NAMESPACES and not page.is_redirect for page in pages
            ),
            "edits": sum(page.edits for page in pages),
            "images": len(self._files),
        }

    def _list(self, params: Mapping[str, str]) -> Answer:
        if params["list"] == "allpages":
            return self._list_pages(params)
        if params["list"] == "allimages":
            return self._list_files(params)
        raise _bad_value("list", params["list"])

    def _list_pages(self, params: Mapping[str, str]) -> Answer:
        namespace = params.get("apnamespace", "0")
        if not namespace.isdigit() or int(namespace) not in self._order:
            raise _bad_value("apnamespace", namespace)
        limit = _limit(params.get("aplimit", "10"), LIST_MAX)
        keys = self._order[int(namespace)]
        start = bisect_left(keys, (params.get("apcontinue", ""), 0))
        answer: Answer = {"batchcomplete": True}
        if len(keys) > start + limit:
            rest = {"apcontinue": keys[start + limit][0], "continue": "-||"}
            answer["continue"] = rest
        ids = [pageid for _, pageid in keys[start : start + limit]]
        return {**answer, "query": {"allpages": [self._identity(i) for i in ids]}}

    def _list_files(self, params: Mapping[str, str]) -> Answer:
        limit = _limit(params.get("ailimit", "10"), LIST_MAX)
        names = [file.name for file in self._files]
        start = bisect_left(names, params.get("aicontinue", ""))
        answer: Answer = {"batchcomplete": True}
        if len(names) > start + limit:
            rest = {"aicontinue": names[start + limit], "continue": "-||"}
            answer["continue"] = rest
        listed = [
            {"name": file.name, **self._file_info(file), "ns": 6, "title": file.title}
            for file in self._files[start : start + limit]
        ]
        return {**answer, "query": {"allimages": listed}}

    def _file_info(self, file: WikiFile) -> Answer:
        return {
            "size": len(file.content),
            "width": 0,
            "height": 0,
            "url": self._files_url + file.path,
            "sha1": file.sha1,
            "timestamp": "2016-02-29T12:00:00Z",
            "user": "Ada",
            "comment": f"Uploaded {file.name}",
        }

    def _read(self, params: Mapping[str, str]) -> Answer:
        pages, absent = self._chosen(params)
        # "||revisions" in a continuation: that property is complete.
        complete = params.get("continue", "").rpartition("||")[2].split("|")
        asked = params.get("prop", "").split("|")
        rest: Answer = {}
        for prop in asked:
            if prop not in complete:
                rest.update(self._add(prop, pages, params))
        answer: Answer = {"batchcomplete": True}
        if rest:
            open_props = tuple(name.removesuffix("continue") for name in rest)
            over = [prop for prop in asked if _PREFIX[prop] not in open_props]
            answer = {"continue": {**rest, "continue": f"||{'|'.join(over)}"}}
        return {**answer, "query": {"pages": [*absent, *pages.values()]}}

    def _chosen(
        self, params: Mapping[str, str]
    ) -> tuple[dict[int, Answer], list[Answer]]:
        name = "pageids" if "pageids" in params else "titles"
        values = params[name].split("|")
        if len(values) > TITLES_MAX:
            info = f'Too many values supplied for parameter "{name}". The limit is 50.'
            raise ApiError("toomanyvalues", info, limit=TITLES_MAX)
        absent: list[Answer]
        if name == "pageids":
            ids = {int(value) for value in values}
            found = sorted(i for i in ids if i in self._pages)
            absent = [{"pageid": i, "missing": True} for i in ids.difference(found)]
        else:
            titles = [_normal(value) for value in values]
            missing = [title for title in titles if title not in self._ids]
            absent = [{"ns": 0, "title": title, "missing": True} for title in missing]
            found = sorted(self._ids[title] for title in titles if title in self._ids)
        return {pageid: self._identity(pageid) for pageid in found}, absent

    def _add(
        self, prop: str, pages: dict[int, Answer], params: Mapping[str, str]
    ) -> Answer:
        """Add a property to the pages; return what to ask for its rest."""
        if prop == "info":
            for pageid, page in pages.items():
                page.update(self._info(pageid))
            return {}
        if prop == "imageinfo":
            files = {file.title: file for file in self._files}
            for page in pages.values():
                if page["title"] in files:
                    page["imageinfo"] = [self._file_info(files[page["title"]])]
            return {}
        if prop == "categories":
            links = [(i, name) for i in pages for name in self._pages[i].categories]
            return _add_links(pages, prop, "cl", 14, links, params)
        if prop == "templates":
            links = [(i, name) for i in pages for name in self._pages[i].templates]
            return _add_links(pages, prop, "tl", 10, links, params)
        if prop == "revisions":
            return self._add_revisions(pages, params)
        raise _bad_value("prop", prop)

    def _info(self, pageid: int) -> Answer:
        page = self._pages[pageid]
        last = Edit(page, pageid, page.edits)
        info: Answer = {"lastrevid": last.revid, "length": len(page.text.encode())}
        return {**info, "redirect": True} if page.is_redirect else info

    def _add_revisions(
        self, pages: dict[int, Answer], params: Mapping[str, str]
    ) -> Answer:
        if "rvlimit" not in params:
            for pageid, page in pages.items():
                last = Edit(self._pages[pageid], pageid, self._pages[pageid].edits)
                page["revisions"] = [last.shown()]
            return {}
        if len(pages) > 1:
            raise ApiError(
                "invalidparammix",
                '"titles", "pageids" or a generator was used to supply multiple pages, '
                'but the "rvlimit" parameter may only be used on a single page.',
            )
        limit = _limit(params["rvlimit"], REVISIONS_MAX)
        for pageid, page in pages.items():
            edits = self._edits(pageid, params)
            page["revisions"] = [edit.shown() for edit in edits[:limit]]
            if len(edits) > limit:
                time = edits[limit].time.strftime("%Y%m%d%H%M%S")
                return {"rvcontinue": f"{time}|{edits[limit].revid}"}
        return {}

    def _edits(self, pageid: int, params: Mapping[str, str]) -> Sequence[Edit]:
        """Return those that are still missing, in the requested order."""
        page = self._pages[pageid]
        numbers = range(1, page.edits + 1)
        is_newer = params.get("rvdir") == "newer"
        if "rvcontinue" in params:
            _, _, revid = params["rvcontinue"].partition("|")
            if not revid.isdigit():
                raise ApiError("badcontinue", "Invalid continue parameter.")
            first = int(revid) - Edit(page, pageid, 0).revid
            numbers = range(first, page.edits + 1) if is_newer else range(1, first + 1)
        edits = [Edit(page, pageid, number) for number in numbers]
        return edits if is_newer else edits[::-1]

    def _identity(self, pageid: int) -> Answer:
        page = self._pages[pageid]
        return {"pageid": pageid, "ns": page.ns, "title": page.title}


# What the parameters of a property begin with.
_PREFIX = {
    "info": "in",
    "categories": "cl",
    "templates": "tl",
    "revisions": "rv",
    "imageinfo": "ii",
}


def _add_links(
    pages: dict[int, Answer],
    prop: str,
    prefix: str,
    ns: int,
    links: list[tuple[int, str]],
    params: Mapping[str, str],
) -> Answer:
    limit = _limit(params.get(f"{prefix}limit", "10"), LINKS_MAX)
    links = sorted((pageid, name.replace(" ", "_")) for pageid, name in links)
    if f"{prefix}continue" in params:
        page, _, key = params[f"{prefix}continue"].partition("|")
        links = links[bisect_left(links, (int(page), key)) :]
    for pageid, key in links[:limit]:
        link = {"ns": ns, "title": key.replace("_", " ")}
        pages[pageid].setdefault(prop, []).append(link)
    if len(links) <= limit:
        return {}
    pageid, key = links[limit]
    return {f"{prefix}continue": f"{pageid}|{key}"}


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
