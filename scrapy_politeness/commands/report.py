"""``scrapy politeness report``: the report of a crawl in the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from scrapy_politeness.commands.output import CommandError, say, say_json, table
from scrapy_politeness.core.text import counted, duration, escaped, shortened
from scrapy_politeness.observe.figures import columns
from scrapy_politeness.observe.report import read_report

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from scrapy.commands import ScrapyCommand

    from scrapy_politeness.observe.figures import Figure
    from scrapy_politeness.observe.report import Report, SlotReport

SUMMARY = "Print the report of a crawl (POLITENESS_REPORT)"

_WIDEST = 40


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def run(command: ScrapyCommand, opts: Namespace) -> int:
    try:
        report = read_report(opts.file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"cannot read {escaped(opts.file)}: {reason}") from None
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
        f"{report.spider}: {report.finish_reason} after {duration(report.seconds)} "
        f"(started {report.started}, written by {report.software})"
    )
    yield (
        f"{total['sent']:,} requests sent: {total['served']:,} served, "
        f"{total['refused']:,} refused, {total['timed_out']:,} timed out, "
        f"{total['failed']:,} failed"
    )
    for cause, seconds in total.ranked_causes:
        yield f"  {duration(seconds):>14}  {cause.value}"
    if report.slots:
        figures = columns(slot.figures for slot in report.slots)
        headings = ["host", *(f.title.lower() for f in figures), "health"]
        yield ""
        yield table(headings, [_row(slot, figures) for slot in report.slots])
    if report.others:
        hosts = counted(report.others, "more host")
        yield f"and {hosts} with {report.other['sent']:,} requests"


def _row(slot: SlotReport, figures: list[Figure]) -> list[str]:
    cells = (figure.text(slot.figures) for figure in figures)
    return [shortened(slot.name, _WIDEST), *cells, slot.health or ""]
