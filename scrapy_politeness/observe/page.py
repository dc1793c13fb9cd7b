"""The report as one self-contained HTML page, from the templates in assets/."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from scrapy_politeness.core import text
from scrapy_politeness.core.cause import Cause
from scrapy_politeness.observe.evidence import explain
from scrapy_politeness.observe.figures import columns
from scrapy_politeness.observe.plot import Plot
from scrapy_politeness.observe.report import MARK, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_politeness.observe.figures import Figure
    from scrapy_politeness.observe.report import Report, SlotReport

_CAUSES = {
    Cause.HOST: ("The hosts", "refusals, Retry-After, known limits"),
    Cause.ROBOTS: ("robots.txt", "Crawl-delay, Request-rate, Visit-time"),
    Cause.SETTINGS: ("Your settings", "maximum rates, limits, DOWNLOAD_DELAY"),
    Cause.START: ("The careful start", "while looking for a host's limit"),
    Cause.SPIDER: ("The spider", "it had nothing to send, or held a slot"),
    Cause.ANSWERS: ("Slow responses", "as many requests as allowed were in flight"),
    Cause.CRAWLER: ("The crawler", "CONCURRENT_REQUESTS, a busy process"),
}


_TOTALS = ("sent", "served", "refused", "rescheduled", "timed_out")


class Html(str):
    """What needs no escaping."""

    __slots__ = ()


_UNKNOWN = Html("&ndash;")


def render(report: Report) -> str:
    script = _asset("report.js")
    total, seconds = report.total, report.seconds
    plotted = [n for n, slot in enumerate(report.slots) if slot.series is not None]
    slots = len(report.slots) + report.others
    left = slots - len(plotted)
    figures = columns(slot.figures for slot in report.slots)
    other = replace(report.other, name=f"{report.others:,} other slots")
    return _fill(
        "page",
        digest=b64encode(sha256(script.encode()).digest()).decode(),
        style=Html(_asset("report.css")),
        script=Html(script),
        data=Html(f"{MARK}{to_json(report)}</script>"),
        spider=report.spider,
        started=report.started,
        started_at=re.sub(r"T([\d:]*).*", r" \1 UTC", report.started),
        duration=_duration(seconds),
        ending=report.ending,
        software=report.software,
        average=text.rate(total["served"] / seconds) if seconds else _UNKNOWN,
        waited=_duration(total["waited"]),
        slots=f"{slots:,}",
        **{name: f"{total[name]:,}" for name in _TOTALS},
        blocked=_blocked(report),
        causes=_causes(total),
        heads=_heads(figures),
        rows=_join(_row(slot, figures, n) for n, slot in enumerate(report.slots)),
        foot=_fill("foot", row=_row(other, figures)) if report.others else "",
        overall=_plot_html(total, report, smooth=True),
        plots=_join(_plot(report, n) for n in plotted),
        not_plotted=_fill("not_plotted", count=f"{left:,}") if left else "",
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text("utf-8")


@cache
def _templates() -> dict[str, Template]:
    _, *parts = re.split(r"^@@ (\w+)\n", _asset("report.html"), flags=re.MULTILINE)
    return {
        name: Template(html if name == "page" else html.rstrip("\n"))
        for name, html in zip(parts[::2], parts[1::2], strict=True)
    }


def _fill(template: str, **values: object) -> Html:
    """All values are escaped that are not Html."""
    safe = {
        name: value if isinstance(value, Html) else escape(str(value))
        for name, value in values.items()
    }
    return Html(_templates()[template].substitute(safe))


def _join(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def _unbroken(text: str) -> Html:
    return Html(escape(text).replace(" ", "&nbsp;"))


def _duration(seconds: float) -> Html:
    return _unbroken(text.duration(seconds))


def _blocked(report: Report) -> Html:
    items = [
        _fill(
            "blocked_slot",
            name=slot.name,
            reason=slot.blocked,
            given_up=f"{slot['given_up']:,}",
        )
        for slot in report.slots
        if slot.blocked
    ]
    return _fill("blocked", items=_join(items)) if items else Html("")


def _causes(total: SlotReport) -> Html:
    ranked = total.ranked_causes
    if not ranked:
        return Html("<p>Nothing.</p>")
    spent = sum(seconds for _, seconds in ranked)
    bars = (
        _fill("bar", name=cause.name.lower(), seconds=f"{seconds:.3f}")
        for cause, seconds in ranked
    )
    items = (_cause(cause, seconds, seconds / spent) for cause, seconds in ranked)
    return _fill("causes", bars=_join(bars), items=_join(items))


def _cause(cause: Cause, seconds: float, share: float) -> Html:
    title, meaning = _CAUSES[cause]
    return _fill(
        "cause",
        name=cause.name.lower(),
        share=_unbroken(f"{100 * share:.0f} %" if share >= 0.01 else "<1 %"),
        title=title,
        duration=_duration(seconds),
        meaning=meaning,
    )


def _heads(figures: list[Figure]) -> Html:
    down = Html(" data-down")
    heads = (
        ("Slot", "a host, or the slot that a request names", ""),
        *((figure.title, figure.meaning, down) for figure in figures),
        ("Health", "at the end of the crawl", ""),
        ("Waited for", "what its requests waited for longest", ""),
    )
    return _join(_fill("head", title=t, meaning=m, attributes=a) for t, m, a in heads)


def _row(slot: SlotReport, figures: list[Figure], number: int | None = None) -> Html:
    why = explain(slot.figures, slot.evidence)
    name = _fill("name", name=slot.name)
    cells = (
        _fill(
            "cell",
            value=slot[figure.name],
            text=_unbroken(figure.text(slot.figures)) or _UNKNOWN,
        )
        for figure in figures
    )
    return _fill(
        "row",
        name=_fill("link", number=number, name=name) if slot.series else name,
        # Next to a plot, there is more room for it.
        why=_fill("why", why=why) if why and not slot.series else "",
        cells=_join(cells),
        health=slot.health or _UNKNOWN,
        cause=_main_cause(slot) or _UNKNOWN,
    )


def _main_cause(slot: SlotReport) -> str:
    ranked = slot.ranked_causes
    return ranked[0][0].value if ranked else ""


def _plot(report: Report, number: int) -> Html:
    slot = report.slots[number]
    parts = [f"{slot['served']:,} pages"]
    if refused := slot["refused"] + slot["timed_out"]:
        parts.append(f"{refused:,} refused or timed out")
    if cause := _main_cause(slot):
        waited = text.duration(slot["waited"])
        parts.append(f"waited {waited}, mostly for {cause}")
    if why := explain(slot.figures, slot.evidence):
        parts.append(why)
    caption, plot = " · ".join(parts), _plot_html(slot, report)
    return _fill("plot", number=number, name=slot.name, caption=caption, plot=plot)


def _plot_html(slot: SlotReport, report: Report, *, smooth: bool = False) -> Html:
    if slot.series is None:
        return Html("")
    return Html(Plot(slot.series, report.seconds, slot.name, smooth=smooth).html())
