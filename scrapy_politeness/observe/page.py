"""The report as one self-contained HTML page."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from scrapy_politeness.core import text
from scrapy_politeness.core.cause import Cause
from scrapy_politeness.observe.figures import columns
from scrapy_politeness.observe.plot import Plot
from scrapy_politeness.observe.report import MARK, to_json

if TYPE_CHECKING:
    from scrapy_politeness.observe.figures import Figure
    from scrapy_politeness.observe.report import Report, SlotReport

UNKNOWN = "&ndash;"

# What each cause means to somebody who sees it for the first time.
_CAUSES = {
    Cause.HOST: ("The hosts", "refusals, Retry-After, known limits"),
    Cause.ROBOTS: ("robots.txt", "Crawl-delay, Request-rate, Visit-time"),
    Cause.SETTINGS: ("Your settings", "maximum rates, limits, DOWNLOAD_DELAY"),
    Cause.START: ("The careful start", "while looking for a host's limit"),
    Cause.SPIDER: ("The spider", "it had nothing to send, or held a slot"),
    Cause.ANSWERS: ("Slow responses", "as many requests as allowed were in flight"),
    Cause.CRAWLER: ("The crawler", "CONCURRENT_REQUESTS, a busy process"),
}


def render(report: Report) -> str:
    script = _asset("report.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; \
form-action 'none'">
<title>Crawl report: {escape(report.spider)}</title>
<style>
{_asset("report.css")}</style>
</head>
<body>
<main>
{_header(report)}
{_tiles(report)}
{_limits(report.total)}
{_table(report)}
{_plots(report)}
</main>
{_footer(report)}
{MARK}{to_json(report)}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text("utf-8")


def _header(report: Report) -> str:
    started = escape(report.started)
    readable = escape(re.sub(r"T([\d:]*).*", r" \1 UTC", report.started))
    return (
        f"<header><h1>Crawl report <span>{escape(report.spider)}</span></h1>"
        f'<p>Started <time datetime="{started}">{readable}</time>, '
        f"ended after {_duration(report.seconds)}: "
        f"{escape(report.finish_reason)}.</p></header>"
    )


def _tiles(report: Report) -> str:
    total, seconds = report.total, report.seconds
    per_second = text.rate(total["served"] / seconds) if seconds else UNKNOWN
    tiles = (
        ("Pages", f"{total['served']:,}", f"{per_second} on average"),
        (
            "Refused",
            f"{total['refused']:,}",
            f"{total['rescheduled']:,} rescheduled, {total['timed_out']:,} timed out",
        ),
        ("Duration", _duration(seconds), f"{total['sent']:,} requests sent"),
        ("Waiting", _duration(total["waited"]), "for politeness, over all slots"),
        ("Slots", f"{len(report.slots) + report.others:,}", "each with its own rate"),
    )
    return (
        '<dl class="tiles">'
        + "".join(
            f"<div><dt>{title}</dt><dd>{value}<small>{more}</small></dd></div>"
            for title, value, more in tiles
        )
        + "</dl>"
    )


def _limits(total: SlotReport) -> str:
    ranked = total.ranked_causes
    spent = sum(seconds for _, seconds in ranked)
    if not spent:
        return "<section><h2>What limited the crawl</h2><p>Nothing.</p></section>"
    bars = "".join(
        f'<i class="c-{cause.name.lower()}" style="flex-grow:{seconds:.3f}"></i>'
        for cause, seconds in ranked
    )
    items = "".join(_limit(cause, seconds, spent) for cause, seconds in ranked)
    return (
        '<section><h2>What limited the crawl</h2><p class="hint">What the requests of '
        "each slot waited for, after the previous one was sent.</p>"
        f'<div class="bar" aria-hidden="true">{bars}</div>'
        f'<ul class="causes">{items}</ul></section>'
    )


def _limit(cause: Cause, seconds: float, spent: float) -> str:
    title, meaning = _CAUSES[cause]
    share = 100 * seconds / spent
    shown = "&lt;1" if share < 1 else f"{share:.0f}"
    return (
        f'<li><i class="c-{cause.name.lower()}"></i><b>{shown} %</b> '
        f"<span>{title}<small>{_duration(seconds)}: {meaning}</small></span></li>"
    )


def _table(report: Report) -> str:
    figures = columns(slot.figures for slot in report.slots)
    heads = "".join(
        (
            _head("Slot", "a host, or what a request names as its slot"),
            *(_head(f.title, f.meaning, " data-down") for f in figures),
            _head("Health", "at the end of the crawl"),
            _head("Waited for", "what its requests waited for longest"),
        )
    )
    rows = "".join(_row(slot, figures, n) for n, slot in enumerate(report.slots))
    foot = ""
    if report.others:
        other = replace(report.other, name=f"{report.others:,} other slots")
        foot = f"<tfoot>{_row(other, figures)}</tfoot>"
    return (
        '<section><h2>Slots</h2><p class="hint">Select a heading to sort by it.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Slots">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>{foot}</table>"
        "</div></section>"
    )


def _head(title: str, meaning: str, attributes: str = "") -> str:
    return (
        f'<th scope="col" title="{escape(meaning)}"{attributes}>'
        f'<button type="button">{title}</button></th>'
    )


def _row(slot: SlotReport, figures: list[Figure], number: int | None = None) -> str:
    name = f'<span title="{escape(slot.name)}">{escape(slot.name)}</span>'
    if slot.series is not None:
        name = f'<a href="#slot-{number}">{name}</a>'
    cells = "".join(
        f'<td class="n" data-value="{slot[figure.name]}">'
        f"{_spaced(figure.text(slot.figures)) or UNKNOWN}</td>"
        for figure in figures
    )
    health = escape(slot.health) if slot.health else UNKNOWN
    return (
        f'<tr><th scope="row">{name}</th>{cells}'
        f'<td class="h-{health}">{health}</td><td>{_mostly(slot)}</td></tr>'
    )


def _mostly(slot: SlotReport) -> str:
    ranked = slot.ranked_causes
    return _CAUSES[ranked[0][0]][0].lower() if ranked else UNKNOWN


def _spaced(text: str) -> str:
    return text.replace(" ", "&nbsp;")


def _duration(seconds: float) -> str:
    return _spaced(text.duration(seconds))


_LEGEND = """<ul class="legend">
<li><i class="k-sent"></i>requests sent</li>
<li><i class="k-allowed"></i>rate allowed</li>
<li><i class="k-ceiling"></i>limit, while known</li>
<li><i class="k-refused"></i>refused or timed out</li>
<li><i class="k-pause"></i>pause</li>
</ul>"""


def _plots(report: Report) -> str:
    plotted = [
        (n, slot, slot.series) for n, slot in enumerate(report.slots) if slot.series
    ]
    total = report.total.series
    overall = Plot(total, report.seconds, "all slots", smooth=True) if total else None
    figures = "".join(
        f'<figure id="slot-{n}"><figcaption><h3>{escape(slot.name)}</h3>'
        f"<p>{_caption(slot)}</p></figcaption>"
        f"{Plot(series, report.seconds, slot.name).html()}</figure>"
        for n, slot, series in plotted
    )
    left = len(report.slots) + report.others - len(plotted)
    note = f'<p class="hint">{left:,} more slots are not plotted.</p>' if left else ""
    return (
        '<section><h2>Rates over time</h2><p class="hint">Requests, against the time '
        f"since the start of the crawl.</p>{_LEGEND}"
        "<figure><figcaption><h3>All slots</h3></figcaption>"
        f"{overall.html() if overall else ''}</figure>{figures}{note}</section>"
    )


def _caption(slot: SlotReport) -> str:
    parts = [f"{slot['served']:,} pages"]
    if refused := slot["refused"] + slot["timed_out"]:
        parts.append(f"{refused:,} refused or timed out")
    if slot.ranked_causes:
        parts.append(f"waited {_duration(slot['waited'])}, mostly for {_mostly(slot)}")
    return " · ".join(parts)


def _footer(report: Report) -> str:
    return (
        "<footer><p>Pages are all responses that were not refusals, including "
        "robots.txt and error pages. Exempt hosts and cached pages are not counted. A "
        "dash means that a figure is not known. Bad luck is the share of requests that "
        "fail whatever the rate; they were rescheduled.</p>"
        f"<p>Written by {escape(report.software)}. This page also has the figures as "
        "JSON.</p></footer>"
    )
