"""docs/reference.md has every public name of the code, and no other."""

from __future__ import annotations

import argparse
import ast
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings

import scrapy_politeness
from scrapy_politeness import PolitenessExtension, RateLimiter, signals
from scrapy_politeness.commands.politeness import Command
from scrapy_politeness.config.table import SETTINGS
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.observe.metrics import CensusCollector
from scrapy_politeness.simulator import TokenBucket, simulate
from tests.docs.documents import README, ROOT, Document, quoted
from tests.docs.tables import REFERENCE, TABLES
from tests.support.observed import ObservedCrawl
from tests.support.ready import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler

SOURCES = sorted((ROOT / "scrapy_politeness").rglob("*.py"))
TREES = [ast.parse(path.read_text("utf-8")) for path in SOURCES]

LOGGING = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR"}


def nodes() -> Iterator[ast.AST]:
    for tree in TREES:
        yield from ast.walk(tree)


def texts(prefix: str) -> set[str]:
    """All texts in the code that begin so."""
    constants = (node.value for node in nodes() if isinstance(node, ast.Constant))
    return {c for c in constants if isinstance(c, str) and c.startswith(prefix)}


def first_column(heading: str) -> set[str]:
    return {name for row in REFERENCE.rows(heading) for name in quoted(row[0])}


def members(cls: type) -> set[str]:
    return {n for n in vars(cls) if not n.startswith("_")} - {"from_crawler"}


@pytest.mark.parametrize("heading", TABLES)
def test_tables_that_are_made_from_the_code(heading: str) -> None:
    """``python -m tests.docs.tables`` writes them again."""
    assert REFERENCE.rows(heading) == TABLES[heading]


def test_the_defaults_on_the_front_page() -> None:
    for name, default, _ in Document(README).rows("Settings"):
        assert default == f"`{SETTINGS[name.strip('`')].default!r}`"


def test_keys_of_request_meta() -> None:
    finish_reasons = {"politeness_blocked"}
    names = {text for text in texts("politeness_") if text.isidentifier()}
    assert first_column("Request meta") == names - finish_reasons


def test_stats() -> None:
    assert first_column("Stats") == {
        text for text in texts("politeness/") if not text.endswith("/")
    }


def test_signals_with_their_arguments() -> None:
    observed_crawl = ObservedCrawl()
    received: dict[str, set[str]] = {}
    receivers = []
    for name in members_of_signals():

        def receive(_name: str = name, **arguments: Any) -> None:
            ours = set(arguments) - {"signal", "sender"}
            received.setdefault(_name, set()).update(ours)

        receivers.append(receive)
        observed_crawl.crawler.signals.connect(receive, getattr(signals, name))
    slot = Slot("host", Bounds(), spacing=0.0, concurrency=8)
    simulate([observed_crawl.observe(slot)], TokenBucket(4, burst=8), seconds=1800)
    observed_crawl.events.resumed(slot)
    observed_crawl.events.blocked(slot, "a challenge")
    rows = REFERENCE.rows("Signals")
    assert {quoted(row[0])[0]: set(quoted(row[1])) for row in rows} == received


def members_of_signals() -> list[str]:
    return [name for name, value in vars(signals).items() if type(value) is object]


def test_metrics(crawler: Callable[..., Crawler]) -> None:
    parts = parts_of(crawler())
    taker = parts.census_taker
    collector = CensusCollector()
    collector.update(taker.census(0.0), taker.tallies.waits)
    names = {
        metric.name.removeprefix("scrapy_politeness_")
        + ("_total" if metric.type == "counter" else "")
        for metric in collector.collect()
    }
    assert first_column("Metrics") | first_column("Metrics of each slot") == names


def test_subcommands_with_their_options() -> None:
    rows = {
        row[0].strip("`"): set(quoted(row[1])) for row in REFERENCE.rows("Commands")
    }
    common = rows.pop("all of them")
    subcommands = subparsers()
    assert set(rows) == set(subcommands)
    for name, parser in subcommands.items():
        words = set(arguments_of(parser))
        assert common <= words, name
        assert rows[name] == words - common, name


def subparsers() -> dict[str, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser()
    command = Command()
    command.settings = Settings()
    command.add_options(parser)
    [choices] = [
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(choices)


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.option_strings:
            yield from set(action.option_strings) - {"-h", "--help"}
        elif action.choices:
            yield from action.choices
        else:
            yield str(action.metavar)


def test_exported_names() -> None:
    assert first_column("Classes") == set(scrapy_politeness.__all__)


def test_what_a_spider_may_ask_with_its_arguments() -> None:
    for row in REFERENCE.rows("PolitenessExtension"):
        name, _, arguments = quoted(row[0])[0].rstrip(")").partition("(")
        method = getattr(PolitenessExtension, name)
        assert arguments.split(", ") == list(inspect.signature(method).parameters)[1:]
    told = {call.partition("(")[0] for call in first_column("PolitenessExtension")}
    assert told == members(PolitenessExtension)


def test_the_limiter() -> None:
    told = {call.partition("(")[0] for call in first_column("RateLimiter")}
    assert told == members(RateLimiter)
    parameters = inspect.signature(RateLimiter).parameters
    for name, parameter in parameters.items():
        if name not in ("clock", "sleep"):
            assert f"{name}={parameter.default!r}" in REFERENCE.section("RateLimiter")


def test_texts_to_search_the_log_for_with_their_levels() -> None:
    logged = list(log_calls())
    for row in REFERENCE.rows("Log"):
        [text] = quoted(row[0])
        levels = {level for level, message in logged if text in message}
        assert {row[1], "any"} & levels or texts(text), text


def log_calls() -> Iterator[tuple[str, str]]:
    """Level and message; where the level is worked out, it is "any"."""
    for function in nodes():
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(function))
        named = {
            node.targets[0].id: node.value
            for node in inside
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in inside:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                level = LOGGING.get(node.func.attr, "any")
                for argument in node.args[:3]:
                    if isinstance(argument, ast.Name):
                        argument = named.get(argument.id, argument)
                    if isinstance(argument, ast.Constant):
                        yield level, str(argument.value)
