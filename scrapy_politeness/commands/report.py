"""``scrapy politeness report``: the report of a crawl in the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from scrapy_politeness.commands.output import (
    CommandError,
    print_json,
    print_text,
    table,
)
from scrapy_politeness.core.text import counted, duration, escaped, shortened
from scrapy_politeness.observe.figures import columns
from scrapy_politeness.observe.report import read_report

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from scrapy.commands import ScrapyCommand

    from scrapy_politeness.observe.report import Report

SUMMARY = "Print the report of a crawl"

_WIDEST_NAME = 40


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the report that a crawl wrote to POLITENESS_REPORT",
    )


def run(command: ScrapyCommand, opts: Namespace) -> int:
    try:
        report = read_report(opts.file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"cannot read {escaped(opts.file)}: {reason}") from None
    except ValueError as error:
        raise CommandError(escaped(str(error))) from None
    if opts.json:
        print_json(asdict(report))
    else:
        print_text("\n".join(lines(report)))
    return 0


def lines(report: Report) -> Iterator[str]:
    total = report.total
    yield (
        f"{report.spider}: {report.ending} "
        f"(started {report.started}, written by {report.software})"
    )
    yield (
        f"{total['sent']:,} requests sent: {total['served']:,} served, "
        f"{total['refused']:,} refused, {total['timed_out']:,} timed out, "
        f"{total['failed']:,} failed"
    )
    for slot in report.slots:
        if slot.blocked:
            yield f"Not welcome at {slot.name}: {slot.blocked}"
    for cause, seconds in total.ranked_causes:
        yield f"  {duration(seconds):>14}  {cause.value}"
    if report.slots:
        figures = columns(slot.figures for slot in report.slots)
        headings = ["host", *(f.title.lower() for f in figures), "health"]
        rows = [
            [
                shortened(slot.name, _WIDEST_NAME),
                *(figure.text(slot.figures) for figure in figures),
                slot.health or "",
            ]
            for slot in report.slots
        ]
        yield f"\n{table(headings, rows)}"
    if report.others:
        hosts = counted(report.others, "more host")
        yield f"and {hosts} with {report.other['sent']:,} requests"
