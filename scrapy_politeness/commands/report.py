"""``scrapy politeness report``: the report of a crawl, in the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from scrapy_politeness.commands.terminal import CommandError, say, say_json, table
from scrapy_politeness.observe.report import read_report
from scrapy_politeness.observe.text import (
    counted,
    duration,
    escaped,
    percent,
    rate,
    shortened,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from scrapy.commands import ScrapyCommand

    from scrapy_politeness.observe.report import Report, SlotReport

SUMMARY = "Print the report that a crawl has written (POLITENESS_REPORT)"

_WIDEST = 40
_HEADINGS = (
    "host",
    "sent",
    "refused",
    "timed out",
    "waited",
    "rate",
    "limit",
    "bad luck",
    "health",
)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def run(command: ScrapyCommand, opts: Namespace) -> int:
    try:
        report = read_report(opts.file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"{escaped(opts.file)} cannot be read: {reason}") from None
    except ValueError as error:
        raise CommandError(escaped(str(error))) from None
    if opts.json:
        say_json(asdict(report))
    else:
        say("\n".join(lines(report)))
    return 0


def lines(report: Report) -> Iterator[str]:
    total = report.total
    yield (
        f"{report.spider}: {report.finish_reason}, after {duration(report.seconds)} "
        f"(from {report.started} on, by {report.software})"
    )
    yield (
        f"{counted(total.sent, 'request')} sent, {total.served} served, "
        f"{total.refused} refused, {total.timed_out} timed out, {total.failed} failed"
    )
    for cause, seconds in total.ranked_causes:
        yield f"  {duration(seconds):>14}  {cause.value}"
    if report.slots:
        yield ""
        yield table(_HEADINGS, [_row(slot) for slot in report.slots])
    if report.others:
        hosts = counted(report.others, "more host")
        yield f"and {hosts}, with {counted(report.other.sent, 'request')}"


def _row(slot: SlotReport) -> list[str]:
    figures = slot.figures
    return [
        shortened(slot.name, _WIDEST),
        str(figures.sent),
        str(figures.refused),
        str(figures.timed_out),
        duration(figures.waited),
        "" if slot.rate is None else rate(slot.rate),
        "" if slot.ceiling is None else rate(slot.ceiling),
        percent(slot.bad_luck) if slot.bad_luck else "",
        slot.health or "",
    ]
