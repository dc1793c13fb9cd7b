"""The table of what may come instead of a robots.txt, in docs/faults.md."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.crawl.test_unreachable_robots import OBEYING, RULES
from tests.support.crawl import crawl
from tests.support.failures import HANGING, RESET
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.site import Site

_DOCS = Path(__file__).parents[2] / "docs" / "faults.md"

THE_RULES = "these rules"
ALL = "there are no rules: everything is allowed"
NOTHING = "unreachable: everything is disallowed, or the last copy applies"
THE_ERROR = "pages fail with the same error, after three attempts in 15 s"

GOOD = Answer(200, {"Content-Type": "text/plain"}, RULES.encode())
MOVED = Answer(301, {"Location": "/moved.txt"})
LOOP = Answer(302, {"Location": "/robots.txt"})

TABLE: dict[str, tuple[str, list[Answer]]] = {
    "2xx, also after redirects": (THE_RULES, [GOOD, MOVED]),
    "4xx except 429, too many redirects": (
        ALL,
        [Answer(404, body=RULES.encode()), Answer(403), Answer(410), LOOP],
    ),
    "429, 5xx, timeouts, failed connections": (
        NOTHING,
        [Answer(429), Answer(500), Answer(503), Answer(530), HANGING, RESET],
    ),
    "a host name that does not resolve, a proxy that fails": (THE_ERROR, []),
}


def judge(robots: Answer) -> Callable[[str, int], Answer | None]:
    answers = {"/robots.txt": robots, "/moved.txt": GOOD}
    return lambda path, nth: answers.get(path)


def meaning(pages: dict[str, object]) -> str:
    """Of /page/0 and /page/1, the rules forbid the second."""
    ends = (pages["/page/0"], pages["/page/1"])
    return {
        (200, "IgnoreRequest"): THE_RULES,
        (200, 200): ALL,
        ("IgnoreRequest", "IgnoreRequest"): NOTHING,
        ("CannotResolveHostError", "CannotResolveHostError"): THE_ERROR,
        ("DNSLookupError", "DNSLookupError"): THE_ERROR,  # before Scrapy 2.15
    }.get(ends, str(ends))


def test_each_row_is_true(site: Callable[..., Site]) -> None:
    """One crawl for all, since most of the time is spent waiting."""
    expected: dict[str, str] = {}
    urls = []
    for means, answers in TABLE.values():
        for answer in answers:
            host = f"127.0.0.{len(expected) + 2}"
            expected[host] = means
            urls += site(2, hosts=[host], answer=judge(answer)).page_urls()
    expected["nothing.invalid"] = THE_ERROR
    urls += [f"http://nothing.invalid/page/{number}" for number in range(2)]
    result = crawl(urls=urls, settings={**OBEYING, "CONCURRENT_REQUESTS": 50})
    ends: dict[str, dict[str, object]] = defaultdict(dict)
    for item in result.items:
        parts = urlsplit(item["url"])
        end = item.get("error") or item["status"]
        ends[parts.hostname or ""][parts.path] = end
    assert {host: meaning(pages) for host, pages in ends.items()} == expected


def test_the_docs_say_the_same() -> None:
    table = _DOCS.read_text().partition("| answer | what it means |\n")[2]
    lines = table.partition("\n\n")[0].splitlines()[1:]
    told = dict(line.strip("| ").split(" | ") for line in lines)
    assert told == {answers: means for answers, (means, _) in TABLE.items()}
