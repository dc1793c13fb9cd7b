"""``scrapy politeness report``: the report of a crawl, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_politeness.commands.terminal import CommandError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from scrapy.commands import ScrapyCommand

SUMMARY = "Print the report that a crawl has written (POLITENESS_REPORT)"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")


def run(command: ScrapyCommand, opts: Namespace) -> int:
    raise CommandError("to be done")
