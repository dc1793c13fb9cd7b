from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from scrapy import Request, Spider, signals
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import DontCloseSpider
from scrapy.spidermiddlewares.httperror import HttpError

from irowiki import mediawiki
from irowiki.archive import (
    check_user_agent,
    choose_maxlag,
    choose_namespaces,
    open_archive,
    open_demo,
)
from irowiki.items import File, Page, Revision, SiteInfo
from irowiki.ledger import Work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure
    from typing_extensions import Self

    from irowiki.demo_wiki import DemoWiki
    from irowiki.ledger import Ledger
    from irowiki.mediawiki import Answer, Json

SITE = Work("site")
FILES = Work("files")

# What is kept as the API has it.
OF_REVISION = ("revid", "parentid", "timestamp", "user", "userid", "comment", "sha1")
OF_FILE = ("sha1", "size", "timestamp", "user", "comment")

Output = Request | Page | Revision | File | SiteInfo | None


class IrowikiSpider(Spider):
    """Archives a MediaWiki: all pages with their histories, and the files.

    ``scrapy crawl irowiki`` archives this project's demo wiki,
    ``scrapy crawl irowiki -a api=https://example.org/w/api.php`` a real one. The same
    command resumes an earlier run, however it ended.

    All namespaces are archived: a page cannot be rendered without its templates.
    ``-a namespaces=content`` is for content and files only, ``=0,6,10`` for these.
    """

    name = "irowiki"
    # How often a run retries, at the end, what has failed.
    most_tries = 2

    folder: Path
    ledger: Ledger
    maxlag: str
    demo: DemoWiki | None = None

    def __init__(self, api: str = "", namespaces: str = "all", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.api = api
        self.namespaces = namespaces

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.maxlag = choose_maxlag(crawler.settings)
        if spider.api:
            name = mediawiki.wiki_name(spider.api)
            spider.folder, spider.ledger = open_archive(crawler.settings, name)
            check_user_agent(crawler.settings["USER_AGENT"])
        else:
            archive, spider.demo = open_demo(crawler.settings)
            spider.folder, spider.ledger = archive
            spider.api = spider.demo.api_url
        choose_namespaces(spider.ledger, spider.namespaces)
        crawler.signals.connect(spider.ask_for_the_rest, signals.spider_idle)
        return spider

    async def start(self) -> AsyncIterator[Request]:
        self.ledger.forget_tries()
        if self.demo:
            self.demo.start()
        if self.ledger.begin(SITE):
            yield self.ask(SITE)

    def ask_for_the_rest(self) -> None:
        """The queue is empty: what is unfinished has failed, or was lost in a crash."""
        unfinished = self.ledger.take_unfinished(self.most_tries)
        for work in unfinished:
            assert self.crawler.engine
            self.crawler.engine.crawl(self.ask(work))
        if unfinished:
            raise DontCloseSpider

    def ask(
        self, work: Work, rest: Json | None = None, so_far: Json | None = None
    ) -> Request:
        """Return the first request for a piece of work, or the one for its rest."""
        return Request(
            mediawiki.url(self.api, mediawiki.question(*work), rest, self.maxlag),
            callback=self.parse,
            errback=self.fail,
            # Lists first: then it is known how much there is to do.
            priority=0 if work.kind in ("page", "file") else 1,
            cb_kwargs={"work": work, "rest": rest, "so_far": so_far or {}},
        )

    def parse(
        self, response: Response, work: Work, rest: Json | None, so_far: Json
    ) -> Iterator[Output]:
        try:
            answer = mediawiki.read_answer(response, rest)
        except mediawiki.ApiError as error:
            yield self.ask_later(response, work, error)
            return
        read = getattr(self, f"read_{work.kind}")
        yield from read(answer, work, so_far)
        if answer.rest:
            yield self.ask(work, answer.rest, so_far)

    def read_site(self, answer: Answer, work: Work, _: Json) -> Iterator[Output]:
        yield SiteInfo({name: answer.query.get(name) for name in SiteInfo.fields})
        self.ledger.note("statistics", json.dumps(answer.query.get("statistics", {})))
        lists = [Work("namespace", str(ns)) for ns in self.chosen(answer)]
        for listing in [FILES, *lists]:
            if self.ledger.begin(listing):
                yield self.ask(listing)
        self.ledger.done(work)

    def chosen(self, answer: Answer) -> list[int]:
        namespaces = answer.query["namespaces"].values()
        # Those below zero (Special:, Media:) hold no pages.
        existing = {ns["id"] for ns in namespaces if ns["id"] >= 0}
        if self.namespaces == "all":
            return sorted(existing)
        if self.namespaces == "content":
            content = {ns["id"] for ns in namespaces if ns.get("content")}
            return sorted(content | {mediawiki.FILE_NAMESPACE} & existing)
        return [int(ns) for ns in self.namespaces.split(",")]

    def read_namespace(self, answer: Answer, work: Work, _: Json) -> Iterator[Output]:
        for listed in answer.query["allpages"]:
            page = Work("page", str(listed["pageid"]))
            if self.ledger.begin(page):
                yield self.ask(page)
        if not answer.rest:
            self.ledger.done(work)

    def read_page(self, answer: Answer, work: Work, page: Json) -> Iterator[Output]:
        for part in answer.pages:
            if part.get("missing"):  # deleted since it was listed
                self.ledger.gone(work)
                return
            revisions = part.pop("revisions", [])
            mediawiki.merge(page, part)
            page["revisions"] = page.get("revisions", 0) + len(revisions)
            for revision in revisions:
                yield self.revision(page["pageid"], revision)
        if answer.rest:
            return
        yield Page(
            pageid=page["pageid"],
            ns=page["ns"],
            title=page["title"],
            redirect=page.get("redirect", False),
            revid=page["lastrevid"],
            categories=[category["title"] for category in page.get("categories", [])],
            templates=[template["title"] for template in page.get("templates", [])],
        )
        self.ledger.done(work, page["revisions"])

    def revision(self, pageid: int, found: Json) -> Revision:
        revision = Revision({name: found.get(name) for name in OF_REVISION})
        revision["pageid"] = pageid
        revision["minor"] = bool(found.get("minor"))
        hidden = mediawiki.hidden_in(found)
        slot = mediawiki.main_slot(found)
        if "content" in slot:
            revision["text"] = slot["content"]
            revision["contentmodel"] = slot.get("contentmodel")
            revision["contentformat"] = slot.get("contentformat")
        if hidden or "content" not in slot:
            revision["hidden"] = hidden or ["textmissing"]
        return revision

    def read_files(self, answer: Answer, work: Work, _: Json) -> Iterator[Output]:
        for info in answer.query["allimages"]:
            if self.ledger.begin(Work("file", info["title"])):
                # Each file has its own entry in the queue, where Ctrl-C leaves it for
                # the next run. Fetching this URL sends nothing to the wiki.
                yield Request(
                    "data:,",
                    callback=self.parse_file,
                    cb_kwargs={"title": info["title"], "info": info},
                )
        if not answer.rest:
            self.ledger.done(work)

    def read_file(self, answer: Answer, work: Work, _: Json) -> Iterator[Output]:
        for page in answer.pages:
            for info in page.get("imageinfo", [{}]):
                yield from self.parse_file(None, work.key, info)

    def parse_file(
        self, _: Response | None, title: str, info: Json
    ) -> Iterator[Output]:
        work = Work("file", title)
        if info.get("url") and re.fullmatch("[0-9a-f]{40}", info.get("sha1", "")):
            yield File(
                title=title,
                url=urljoin(self.api, info["url"]),
                **{name: info.get(name) for name in OF_FILE},
            )
        elif info.get("filehidden") or not info:
            self.ledger.gone(work)
        else:
            self.ledger.failed(work, "the wiki does not say where it is")

    def ask_later(
        self, response: Response, work: Work, error: mediawiki.ApiError
    ) -> Request | None:
        """Permanent errors are listed in the summary, and retried by the next run."""
        self.logger.warning(
            "Failed to read %(work)s: %(error)s",
            {"work": work, "error": error},
        )
        self.ledger.failed(work, str(error))
        if not error.may_pass:
            return None
        assert response.request
        return get_retry_request(response.request, spider=self, reason="API error")

    def fail(self, failure: Failure) -> None:
        request: Request = failure.request  # type: ignore[attr-defined]
        work = request.cb_kwargs["work"]
        reason = repr(failure.value)
        if isinstance(failure.value, HttpError):
            reason = f"HTTP {failure.value.response.status}"
        self.logger.warning(
            "Failed to fetch %(work)s: %(reason)s", {"work": work, "reason": reason}
        )
        self.ledger.failed(work, reason)
