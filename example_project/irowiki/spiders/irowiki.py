from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from scrapy import Request, Spider
from scrapy.exceptions import UsageError

from irowiki.items import Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from scrapy.http import Response
    from twisted.python.failure import Failure

    from irowiki.demo_wiki import DemoWiki

Json = dict[str, Any]


@dataclass
class Ledger:
    """What tells a complete archive from one with gaps."""

    unread_lists: set[str] = field(default_factory=lambda: {"namespaces"})
    listed: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def gaps(self) -> list[str]:
        gaps = [f"not read to its end: {name}" for name in sorted(self.unread_lists)]
        if missing := sorted(self.listed - self.written):
            gaps.append(f"{len(missing)} pages missing, such as {missing[:3]}")
        return gaps


class IrowikiSpider(Spider):
    """Archives the current text of every page of a MediaWiki.

    ``scrapy crawl irowiki`` practises on this project's own demo wiki;
    ``scrapy crawl irowiki -a api=https://example.org/w/api.php`` reads a real one.
    """

    name = "irowiki"

    def __init__(self, api: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.demo: DemoWiki | None = None
        if api is None:
            self.demo = _demo_wiki()
            api = self.demo.api_url
        self.api = api
        self.state: dict[str, Any] = {}
        self.ledger = Ledger()

    async def start(self) -> AsyncIterator[Any]:
        # With JOBDIR, Scrapy keeps `state` from one run to the next.
        self.ledger = self.state.setdefault("ledger", self.ledger)
        if self.demo:
            self.demo.start()
        yield self.query(
            self.parse_namespaces, {"meta": "siteinfo", "siprop": "namespaces"}
        )

    def parse_namespaces(self, response: Response, params: Json) -> Iterator[Request]:
        if (answer := self.answer(response)) is None:
            return
        namespaces = answer["query"]["namespaces"].values()
        # Those below zero (Special:, Media:) hold no pages.
        for namespace in sorted(ns["id"] for ns in namespaces if ns["id"] >= 0):
            self.ledger.unread_lists.add(f"namespace {namespace}")
            yield self.query(
                self.parse_list,
                {"list": "allpages", "apnamespace": namespace, "aplimit": "max"},
            )
        self.ledger.unread_lists.discard("namespaces")

    def parse_list(self, response: Response, params: Json) -> Iterator[Request]:
        if (answer := self.answer(response)) is None:
            return
        for page in answer["query"]["allpages"]:
            self.ledger.listed.add(page["title"])
            yield self.query(
                self.parse_page,
                {
                    "titles": page["title"],
                    "prop": "revisions|categories",
                    "rvprop": "ids|timestamp|content",
                    "rvslots": "main",
                    "cllimit": "max",
                },
                found={},
            )
        if "continue" in answer:
            yield self.query(self.parse_list, params, answer["continue"])
        else:
            self.ledger.unread_lists.discard(f"namespace {params['apnamespace']}")

    def parse_page(
        self, response: Response, params: Json, found: Json
    ) -> Iterator[Request | Page]:
        if (answer := self.answer(response)) is None:
            return
        found = _merged(found, answer)
        if "continue" in answer:
            yield self.query(self.parse_page, params, answer["continue"], found=found)
        elif page := _page(found):
            self.ledger.written.add(params["titles"])
            yield page
        else:
            self.logger.warning(
                "No text of %(title)r: deleted since it was listed, or hidden",
                {"title": params["titles"]},
            )

    def query(
        self,
        callback: Callable[..., Any],
        params: Json,
        continuation: Json | None = None,
        **cb_kwargs: Any,
    ) -> Request:
        query = {
            "action": "query",
            "format": "json",
            "formatversion": 2,
            "maxlag": 5,
            **params,
            **(continuation or {}),
        }
        return Request(
            f"{self.api}?{urlencode(query)}",
            callback=callback,
            errback=self.log_failure,
            cb_kwargs={"params": params, **cb_kwargs},
        )

    def answer(self, response: Response) -> Json | None:
        try:
            answer: Json = json.loads(response.body)
        except ValueError:
            self.logger.error(
                "%(response)s is no answer of MediaWiki's API", {"response": response}
            )
            return None
        if error := answer.get("error"):
            self.logger.error(
                "%(response)s says %(code)s: %(info)s", {"response": response, **error}
            )
            return None
        return answer

    def log_failure(self, failure: Failure) -> None:
        self.logger.error(
            "No answer to %(request)s: %(reason)r",
            {"request": failure.request, "reason": failure.value},  # type: ignore[attr-defined]
        )

    def closed(self, reason: str) -> None:
        gaps = self.ledger.gaps()
        summary = (
            f"{len(self.ledger.listed)} pages listed, "
            f"{len(self.ledger.written)} written, "
            f"{'; '.join(gaps) or 'nothing missing'}"
        )
        if self.demo:
            self.demo.stop()
            summary += f" ({self.demo.tally()})"
        level = logging.ERROR if gaps else logging.INFO
        self.logger.log(level, "%(summary)s", {"summary": summary})


def _demo_wiki() -> DemoWiki:
    # Imported late: who reads a real wiki does not need its requirement.
    try:
        from irowiki.demo_wiki import DemoWiki
    except ModuleNotFoundError as error:
        if error.name != "limits":
            raise
        raise UsageError(
            "The demo wiki needs the package 'limits': "
            "pip install 'scrapy-politeness[demo]'"
        ) from None
    return DemoWiki()


def _merged(found: Json, answer: Json) -> Json:
    """Join what was found so far with one more answer about the same page."""
    page: Json = next(iter(answer["query"].get("pages", [])), {})
    categories = found.get("categories", []) + page.get("categories", [])
    return {**found, **page, "categories": categories}


def _page(found: Json) -> Page | None:
    revision: Json = next(iter(found.get("revisions", [])), {})
    text = revision.get("slots", {}).get("main", {}).get("content")
    if text is None:
        return None
    return Page(
        pageid=found["pageid"],
        ns=found["ns"],
        title=found["title"],
        revid=revision["revid"],
        timestamp=revision["timestamp"],
        categories=[category["title"] for category in found["categories"]],
        text=text,
    )
