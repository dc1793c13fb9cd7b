"""The report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.observe import text
from scrapy_politeness.observe.plot import Plot
from scrapy_politeness.observe.report import MARK, to_json

if TYPE_CHECKING:
    from scrapy_politeness.observe.report import Figures, Report, SlotReport

UNKNOWN = "&ndash;"

# What each cause means to somebody who sees it for the first time.
_CAUSES = {
    Cause.HOST: ("The hosts", "refusals, Retry-After, limits that were found"),
    Cause.ROBOTS: ("robots.txt", "Crawl-delay, Request-rate, Visit-time"),
    Cause.SETTINGS: ("Your settings", "highest rates, limits, DOWNLOAD_DELAY"),
    Cause.START: ("The careful start", "while a host's limit was looked for"),
    Cause.SPIDER: ("The spider", "it had nothing to send, or held a slot"),
    Cause.ANSWERS: ("Slow answers", "as many requests as allowed were under way"),
    Cause.CRAWLER: ("The crawler", "CONCURRENT_REQUESTS, a busy process"),
}

# Title, and whether the largest value comes first when it is sorted by.
_COLUMNS = (
    ("Slot", False),
    ("Pages", True),
    ("Refused", True),
    ("Timed out", True),
    ("Rescheduled", True),
    ("Waited", True),
    ("Interval", True),
    ("Rate", True),
    ("Limit", True),
    ("Bad luck", True),
    ("Health", False),
    ("Waited for", False),
)


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
    per_second = _rate(total.served / seconds) if seconds else UNKNOWN
    tiles = (
        ("Pages", f"{total.served:,}", f"{per_second} on average"),
        (
            "Refused",
            f"{total.refused:,}",
            f"{total.rescheduled:,} asked again, {total.timed_out:,} timed out",
        ),
        ("Duration", _duration(seconds), f"{total.sent:,} requests sent"),
        ("Waiting", _duration(total.waited), "for politeness, all slots together"),
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


def _limits(total: Figures) -> str:
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
        '<section><h2>What limited the crawl</h2><p class="hint">What the next request '
        "of each slot waited for, from the one before it on.</p>"
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
    heads = "".join(
        f'<th scope="col"{" data-down" if down else ""}>'
        f'<button type="button">{title}</button></th>'
        for title, down in _COLUMNS
    )
    rows = "".join(_row(n, slot) for n, slot in enumerate(report.slots))
    foot = ""
    if report.others:
        cells = _figure_cells(report.other) + _cell("", 0) * 5
        name = f"{report.others:,} other slots"
        foot = (
            f'<tfoot><tr><th scope="row">{name}</th>{cells}'
            f"<td>{_mostly(report.other)}</td></tr></tfoot>"
        )
    return (
        '<section><h2>Slots</h2><p class="hint">Select a heading to sort by it.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Slots">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>{foot}</table>"
        "</div></section>"
    )


def _row(number: int, slot: SlotReport) -> str:
    name = f'<span title="{escape(slot.name)}">{escape(slot.name)}</span>'
    if slot.series is not None:
        name = f'<a href="#slot-{number}">{name}</a>'
    interval = slot.average_interval
    shown = UNKNOWN if interval is None else _interval(interval)
    health = escape(slot.health) if slot.health else UNKNOWN
    return (
        f'<tr><th scope="row">{name}</th>{_figure_cells(slot.figures)}'
        f"{_cell(shown, interval or 0)}{_cell(_rate(slot.rate), slot.rate or 0)}"
        f"{_cell(_rate(slot.ceiling), slot.ceiling or 0)}"
        f"{_cell(_bad_luck(slot), slot.bad_luck or 0)}"
        f'<td class="h-{health}">{health}</td><td>{_mostly(slot.figures)}</td></tr>'
    )


def _figure_cells(figures: Figures) -> str:
    counts = (
        figures.served,
        figures.refused,
        figures.timed_out,
        figures.rescheduled,
    )
    cells = "".join(_cell(f"{count:,}", count) for count in counts)
    return cells + _cell(_duration(figures.waited), figures.waited)


def _cell(text: str, value: float) -> str:
    return f'<td class="n" data-value="{value}">{text}</td>'


def _mostly(figures: Figures) -> str:
    ranked = figures.ranked_causes
    return _CAUSES[ranked[0][0]][0].lower() if ranked else UNKNOWN


def _duration(seconds: float) -> str:
    return text.duration(seconds).replace(" ", "&nbsp;")


def _rate(per_second: float | None) -> str:
    return UNKNOWN if per_second is None else text.rate(per_second)


def _bad_luck(slot: SlotReport) -> str:
    return text.percent(slot.bad_luck) if slot.bad_luck else UNKNOWN


def _interval(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"


_LEGEND = """<ul class="legend">
<li><i class="k-sent"></i>requests sent</li>
<li><i class="k-allowed"></i>rate allowed</li>
<li><i class="k-ceiling"></i>limit found, while one is known</li>
<li><i class="k-refused"></i>refused or timed out</li>
<li><i class="k-pause"></i>silence (pause)</li>
</ul>"""


def _plots(report: Report) -> str:
    plotted = [
        (n, slot, slot.series) for n, slot in enumerate(report.slots) if slot.series
    ]
    overall = Plot(report.series, report.seconds, "all slots", smooth=True).html()
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
        f"{overall}</figure>{figures}{note}</section>"
    )


def _caption(slot: SlotReport) -> str:
    figures = slot.figures
    parts = [f"{figures.served:,} pages"]
    if figures.refused or figures.timed_out:
        parts.append(f"{figures.refused + figures.timed_out:,} refused or timed out")
    if figures.ranked_causes:
        parts.append(f"waited {_duration(figures.waited)}, mostly: {_mostly(figures)}")
    return " · ".join(parts)


def _footer(report: Report) -> str:
    return (
        "<footer><p>Pages are all answers that were no refusals, robots.txt and error "
        "pages included. Exempt hosts and cached pages are not counted here. The rate "
        "and the limit in the table are those at the end of the crawl; a dash means "
        "that no limit is known. Bad luck is the share of the requests that fail "
        "whatever the rate: they were asked for again later.</p>"
        f"<p>Written by {escape(report.software)}. The figures are in this page as "
        "JSON, too.</p></footer>"
    )
