"""The command itself, which Scrapy finds by its entry point."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand, ScrapyHelpFormatter
from scrapy.exceptions import UsageError
from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_politeness.commands import check, report, simulate, state
from scrapy_politeness.commands.output import CommandError, print_warning
from scrapy_politeness.config.settings import PolicyError

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

_SUBCOMMANDS: dict[str, ModuleType] = {
    "check": check,
    "state": state,
    "simulate": simulate,
    "report": report,
}


_CMDLINE = SETTINGS_PRIORITIES["cmdline"]


class Command(ScrapyCommand):
    # Set for the only subcommand that crawls.
    requires_crawler_process = False

    def syntax(self) -> str:
        return "{check,state,simulate,report} [options]"

    def short_desc(self) -> str:
        return "Show how hosts are crawled, what was learned, or simulate a crawl"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        subparsers = parser.add_subparsers(
            title="Subcommands",
            dest="subcommand",
            required=True,
            metavar="subcommand",
            prog="scrapy politeness",
        )
        for name, module in _SUBCOMMANDS.items():
            subparser = subparsers.add_parser(
                name,
                help=module.SUMMARY,
                description=module.SUMMARY,
                formatter_class=ScrapyHelpFormatter,
            )
            _add_common(subparser)
            module.add_options(subparser)

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        assert self.settings is not None
        if "hosts" in opts and not any(arg.startswith("-") for arg in args):
            # argparse takes no more of them after an option.
            opts.hosts += args
        elif args:
            raise UsageError(f"unknown arguments: {' '.join(args)}")
        opts.set += opts.more_settings
        super().process_options(args, opts)
        # The level of the project is for its crawls.
        if (self.settings.getpriority("LOG_LEVEL") or 0) < _CMDLINE:
            self.settings.set("LOG_LEVEL", "WARNING", "cmdline")
        # It would redirect our output into the log.
        self.settings.set("LOG_STDOUT", False, "cmdline")
        if opts.subcommand == "check":
            check.validate_url(opts.url)
            self.requires_crawler_process = True

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            self.exitcode = _SUBCOMMANDS[opts.subcommand].run(self, opts)
            sys.stdout.flush()
        except (CommandError, PolicyError) as error:
            print_warning(str(error))
            self.exitcode = 1
        except BrokenPipeError:
            # The interpreter would try again, and print a traceback.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.exitcode = 1


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options that may also follow the subcommand."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-s",
        "--set",
        dest="more_settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set/override setting (may be repeated)",
    )
