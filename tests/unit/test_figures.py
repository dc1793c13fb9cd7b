"""The table of figures feeds everything that shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from scrapy_politeness.commands.report import lines
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.observe.figures import FIGURES, Figure
from scrapy_politeness.observe.live import draw
from scrapy_politeness.observe.metrics import CensusCollector
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import read_report
from scrapy_politeness.observe.reporter import write_report
from scrapy_politeness.observe.tally import Histogram
from scrapy_politeness.observe.timeline import Sampler
from scrapy_politeness.simulator import TokenBucket, simulate
from tests.support.observed import ObservedCrawl

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_politeness.observe.census import Census

NEW = Figure(
    "per_minute",
    "requests per minute",
    lambda view: view.status and 60 * view.status.rate,
    lambda value: f"{value:.0f} each minute",
    title="Per minute",
    stat="per_minute",
    metric="per_minute",
    is_live=True,
)


@pytest.fixture
def observed_crawl(monkeypatch: pytest.MonkeyPatch) -> ObservedCrawl:
    """A crawl of a minute at 10/s, with one more row in the table."""
    rows = "scrapy_politeness.observe.figures.FIGURES"
    monkeypatch.setattr(rows, (*FIGURES, NEW))
    observed_crawl = ObservedCrawl(sampler=Sampler(0.0))
    bounds = Bounds(start_rate=10.0, min_rate=10.0)
    slot = Slot("a.example", bounds, spacing=0.0, concurrency=8)
    simulate([observed_crawl.observe(slot)], TokenBucket(100, burst=5), seconds=60)
    return observed_crawl


def exposed(census: Census) -> str:
    collector = CensusCollector()
    collector.update(census, Histogram())
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def drawn(census: Census) -> str:
    console = Console(width=120, force_terminal=True)
    with console.capture() as capture:
        console.print(draw("crawl", census, 120, 30))
    return capture.get()


def test_a_new_figure_is_one_row(observed_crawl: ObservedCrawl, tmp_path: Path) -> None:
    census = observed_crawl.census(60.0)
    observed_crawl.events.closed(census)
    assert observed_crawl.crawler.stats is not None
    assert (
        observed_crawl.crawler.stats.get_value("politeness/slots/a.example/per_minute")
        == 600
    )

    text = exposed(census)
    assert "# HELP scrapy_politeness_per_minute Requests per minute\n" in text
    assert 'scrapy_politeness_per_minute{slot="a.example"} 600.0' in text

    report = observed_crawl.report(60.0)
    write_report(report, tmp_path / "report.html")
    read = read_report(tmp_path / "report.html")
    assert read == report
    assert read.slots[0]["per_minute"] == 600
    for shown in (
        render(read).replace("&nbsp;", " "),
        "\n".join(lines(read)),
        str(census),
        drawn(census),
    ):
        assert "per minute" in shown.lower()
        assert "600 each minute" in shown


def test_names_that_dashboards_use_stay() -> None:
    assert {figure.stat for figure in FIGURES if figure.stat} >= {
        *("served", "refused", "timed_out", "rescheduled", "given_up", "held_seconds"),
        *("average_interval", "rate", "ceiling", "bad_luck"),
    }
    assert {figure.metric for figure in FIGURES if figure.metric} >= {
        *("requests", "answers", "rescheduled", "waited_seconds", "waiting", "rate"),
        *("limit", "bad_luck", "pause_seconds", "in_flight", "concurrency"),
    }
