"""The page of the benchmark: tables and a plot, all made by the run."""

from __future__ import annotations

import os
import platform
from html import escape
from importlib.metadata import PackageNotFoundError, version
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from tests.benchmarks.rivals.crawlers import Crawler
    from tests.benchmarks.rivals.judge import Score
    from tests.benchmarks.rivals.servers import Server

    Scores = Mapping[tuple[str, str], Score]

_HEAD = (
    "| | pages | share of the fastest | refused per 100 | against Retry-After | CPU |",
    "|---|--:|--:|--:|--:|--:|",
)

# Of the plot, in pixels.
_LEFT, _WIDTH, _ROW = 260, 390, 26


def markdown(
    servers: Sequence[Server],
    crawlers: Sequence[Crawler],
    scores: Scores,
    options: Namespace,
    missing: Sequence[str],
) -> Iterator[str]:
    yield "# Compared with other crawlers"
    yield ""
    yield from _introduction(options, missing)
    yield ""
    yield "![Share of the fastest possible crawl, and refusals](benchmark.svg)"
    yield ""
    yield "## All servers together"
    yield "The average of the tables below, without that about Crawl-delay."
    yield ""
    yield from _summary(servers, crawlers, scores)
    for server in servers:
        yield ""
        yield f"## {server.name}"
        yield from _table(server, crawlers, scores, options.pages)


def _introduction(options: Namespace, missing: Sequence[str]) -> Iterator[str]:
    yield (
        f"{options.pages} pages behind servers that allow 20 requests per second (or "
        "what their heading says) and do not tell. No crawler but the last knows the "
        "limit. "
        "Everything but the CPU time is from the logs of the servers, nginx's and "
        "HAProxy's own included. This page is written by"
    )
    yield ""
    yield "```sh"
    yield "python -m tests.benchmarks.rivals --write"
    yield "```"
    yield ""
    yield (
        "- **Share of the fastest**: 1 is all pages in the shortest possible time; a "
        "crawl that gets half of the pages, or takes twice as long, has 0.5."
    )
    yield (
        "- **Refused per 100**: responses with 429 or 503, per 100 requests, those "
        "that the weather causes included."
    )
    yield (
        "- **Against Retry-After**: requests that came while the server had asked for "
        "silence."
    )
    yield (
        "- Runs differ: of three on one machine, the averages below differed by up to "
        "0.05. Crawlers that are closer to each other than that are equally good."
    )
    yield (
        f"- After {options.longest:.0f} seconds, a crawl was stopped. The careful "
        "start of scrapy-politeness from one request per second is a good part of so "
        "short a crawl, and its default maximum of ten is half of what they allow."
    )
    yield (
        "- Crawlers have their defaults, with robots.txt obeyed; Crawlee for Python "
        "uses its `ThrottlingRequestManager`, wget retries 429 and 503 twenty times, "
        '"sleeping on 429" is the middleware that stops everything for Retry-After or '
        "a minute."
    )
    names = ("scrapy-politeness", "scrapy", "crawlee", "limits", "flask-limiter")
    found = ", ".join(f"{name} {_version(name)}" for name in names if _version(name))
    yield (
        f"- {found}; Python {platform.python_version()}, {os.cpu_count()} cores; "
        f"crawlers and servers on the same machine, {options.jobs} crawls at a time, "
        f"with a load average of {os.getloadavg()[0]:.1f} at the end."
    )
    if missing:
        yield f"- Not installed, and left out: {', '.join(missing)}."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _summary(
    servers: Sequence[Server], crawlers: Sequence[Crawler], scores: Scores
) -> Iterator[str]:
    head, line = _HEAD
    yield head.replace("| pages |", "| all pages |").removesuffix(" CPU |")
    yield line.removesuffix("--:|")
    for crawler in crawlers:
        own = [scores[server.name, crawler.name] for server in _limiting(servers)]
        whole = sum(score.pages >= score.wanted for score in own)
        yield (
            f"| {crawler.name} | {whole} of {len(own)} "
            f"| {mean(score.share for score in own):.2f} "
            f"| {mean(score.refused_per_100 for score in own):.1f} "
            f"| {sum(score.impatient for score in own)} |"
        )


def _limiting(servers: Sequence[Server]) -> list[Server]:
    """Where a crawler may ignore what was asked for, being fast is no merit."""
    return [server for server in servers if not server.crawl_delay]


def _table(
    server: Server, crawlers: Sequence[Crawler], scores: Scores, pages: int
) -> Iterator[str]:
    head, line = _HEAD
    if server.crawl_delay:
        head = head.replace("against Retry-After", "smallest gap")
    yield head
    yield line
    for crawler in crawlers:
        score = scores[server.name, crawler.name]
        special = str(score.impatient)
        if server.crawl_delay and score.gap is not None:
            special = f"{score.gap:.2f} s"
        yield (
            f"| {crawler.name} | {score.pages} of {score.wanted} | {score.share:.2f} "
            f"| {score.refused_per_100:.1f} | {special} | {score.cpu:.1f} s |"
        )


def svg(servers: Sequence[Server], crawlers: Sequence[Crawler], scores: Scores) -> str:
    """Two bars for each crawler: share of the fastest crawl, and refusals."""
    height = _ROW * len(crawlers) + 50
    parts = []
    for number, crawler in enumerate(crawlers):
        own = [scores[s.name, crawler.name] for s in _limiting(servers)]
        share = mean(score.share for score in own)
        refused = mean(score.refused_per_100 for score in own)
        top = 34 + number * _ROW
        weight = "600" if crawler.is_ours else "400"
        parts.append(
            f'<text x="{_LEFT - 10}" y="{top + 13}" text-anchor="end" '
            f'font-weight="{weight}">{escape(crawler.name)}</text>'
            f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH * share:.0f}" height="8" '
            f'fill="#3b82d6"/>'
            f'<rect x="{_LEFT}" y="{top + 9}" width="{_WIDTH * refused / 100:.0f}" '
            f'height="8" fill="#c62828"/>'
            f'<text x="{_LEFT + _WIDTH + 8}" y="{top + 13}" font-size="11">'
            f"{share:.2f}, {refused:.0f} %</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#1b2430">'
        f'<rect width="760" height="{height}" fill="#ffffff"/>'
        f'<rect x="{_LEFT}" y="12" width="12" height="8" fill="#3b82d6"/>'
        f'<text x="{_LEFT + 18}" y="21" font-size="12">'
        "share of the fastest crawl</text>"
        f'<rect x="{_LEFT + 200}" y="12" width="12" height="8" fill="#c62828"/>'
        f'<text x="{_LEFT + 218}" y="21" font-size="12">requests refused</text>'
        f"{''.join(parts)}</svg>\n"
    )
