"""The report of a real crawl, in a real browser."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import read_report
from tests.support.browser import look_at
from tests.support.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.support.settings import HOSTILE, fixed
from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from scrapy_politeness.observe.report import Report, Series
    from tests.conftest import Once
    from tests.support.crawl import Crawl
    from tests.support.site import Arrival

LIMITED, SLOW, DELAYED, NAMED = (f"127.0.1.{number}" for number in range(1, 5))


@dataclass(frozen=True)
class Reported:
    """A crawl and its report; ``arrivals`` are from the log of the server."""

    crawl: Crawl
    file: Path
    report: Report
    arrivals: list[Arrival]
    jitter: float

    def series(self, name: str) -> Series:
        [series] = [slot.series for slot in self.report.slots if slot.name == name]
        assert series is not None
        return series

    def arrived(self, host: str, since: float, until: float) -> int:
        """How many requests came to a host, in seconds since the crawl began."""
        started = datetime.fromisoformat(self.report.started).timestamp()
        start = started - time.time() + time.monotonic()
        return sum(
            a.host == host and since <= a.at - start < until for a in self.arrivals
        )


@pytest.fixture(scope="module")
def three_hosts(once: Once) -> Reported:
    return once(crawl_three_hosts)


def crawl_three_hosts(folder: Path) -> Reported:
    """One host with a limit, a slow one, one with a Crawl-delay; and a slot with a
    name that would do harm."""
    file = folder / "report.html"
    with (
        Site(100, hosts=[LIMITED], limit="10/second", retry_after="1") as limited,
        Site(20, hosts=[SLOW], latency=0.5) as slow,
        Site(10, hosts=[DELAYED], robots="User-agent: *\nCrawl-delay: 1") as delayed,
        Site(3, hosts=[NAMED]) as named,
    ):
        urls = [*limited.page_urls(), *slow.page_urls(), *delayed.page_urls()]
        requests: list[dict[str, Any]] = [{"url": url} for url in urls]
        meta = {"politeness_slot": HOSTILE}
        requests += [{"url": url, "meta": meta} for url in named.page_urls()]
        settings = {
            "POLITENESS_START_RATE": 5,
            "POLITENESS_MAX_RATE": 20,
            "POLITENESS_LIMITS": {SLOW: {"concurrency": 1}},
            "POLITENESS_REPORT": str(file),
            "LOG_LEVEL": "INFO",
        }
        result = crawl(requests=requests, settings=settings)
        arrivals = limited.arrivals + slow.arrivals + delayed.arrivals
        jitter = limited.jitter
    return Reported(result, file, read_report(file), arrivals, jitter)


def test_the_figures_are_those_of_the_crawl(three_hosts: Reported) -> None:
    report, stats = three_hosts.report, three_hosts.crawl.stats
    assert report.finish_reason == "finished"
    slack = 1.0 + three_hosts.jitter
    assert report.seconds == pytest.approx(three_hosts.crawl.seconds, abs=slack)
    assert report.total["served"] == stats["response_received_count"]
    assert report.total["refused"] == stats["politeness/refused"] > 0
    assert report.total["rescheduled"] == stats["politeness/rescheduled"]
    names = {slot.name for slot in report.slots}
    # The fourth host itself was asked for its robots.txt.
    assert names == {LIMITED, SLOW, DELAYED, NAMED, printable(HOSTILE)}
    worst = {slot.name: slot.ranked_causes[:1] for slot in report.slots}
    assert worst[DELAYED][0][0] is Cause.ROBOTS
    assert worst[SLOW][0][0] is Cause.ANSWERS


@pytest.mark.parametrize("host", [LIMITED, SLOW, DELAYED])
def test_the_plotted_rate_is_what_the_server_saw(
    three_hosts: Reported, host: str
) -> None:
    series, window = three_hosts.series(host), 4.0
    assert sum(series.sent) == pytest.approx(
        three_hosts.arrived(host, 0, 1e9), rel=0.05
    )
    buckets = round(window / series.width)
    for first in range(0, len(series.sent) - buckets, buckets // 4):
        since = first * series.width
        plotted = sum(series.sent[first : first + buckets])
        arrived = three_hosts.arrived(host, since, since + window)
        # Whether a request at the edge is in or out is one request, and more if it
        # arrived late.
        late = three_hosts.jitter / window
        assert abs(plotted - arrived) <= 1 + (0.05 + late) * arrived


def test_refusals_and_pauses_are_where_they_were(three_hosts: Reported) -> None:
    series = three_hosts.series(LIMITED)
    assert sum(series.refused) == three_hosts.report.total["refused"]
    first = next(n for n, count in enumerate(series.refused) if count)
    # Retry-After is one second, and nothing is sent meanwhile.
    assert sum(series.silent) >= 0.95
    assert sum(series.silent[first : first + 8]) >= 0.9
    assert min(series.sent[first : first + 8]) == 0
    assert series.ceiling[first - 1] is None
    # So few pages may not be enough to find the limit.
    assert series.ceiling[-1] in (None, pytest.approx(10, rel=0.5))


_DESKTOP = {"width": 1280, "height": 800}
_PHONE = {"width": 390, "height": 844}


def test_the_page_works_in_a_browser(three_hosts: Reported) -> None:
    def look(page: Page) -> None:
        assert page.title() == "Crawl report: pages"
        assert page.locator("figure svg").count() == 1 + len(three_hosts.report.slots)
        assert page.locator("svg .refused").count() > 0
        assert page.locator("svg .pause").count() > 0
        pages = str(three_hosts.report.total["served"])
        assert page.locator(".tiles dd").first.inner_text().startswith(pages)

    look_at(three_hosts.file, look, viewport=_DESKTOP)


def test_a_hostile_name_is_only_text_in_the_page(three_hosts: Reported) -> None:
    def look(page: Page) -> None:
        assert page.title() == "Crawl report: pages"
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        assert printable(HOSTILE) in page.locator("h3").all_text_contents()
        assert page.locator('svg[aria-label*="forged"]').count() == 1

    look_at(three_hosts.file, look)


def test_the_table_sorts_by_mouse_and_keyboard(three_hosts: Reported) -> None:
    def look(page: Page) -> None:
        head = page.locator("thead th")
        pages, slot = head.nth(1), head.nth(0)
        counts = sorted(column(page, 2), key=int)
        pages.get_by_role("button").click()
        assert pages.get_attribute("aria-sort") == "descending"
        assert column(page, 2) == counts[::-1]
        pages.get_by_role("button").focus()
        page.keyboard.press("Enter")
        assert pages.get_attribute("aria-sort") == "ascending"
        assert column(page, 2) == counts
        slot.get_by_role("button").focus()
        page.keyboard.press("Space")
        assert slot.get_attribute("aria-sort") == "ascending"
        assert pages.get_attribute("aria-sort") is None
        names = [cell.partition("\n")[0] for cell in column(page, 1)]
        assert names[:4] == [LIMITED, SLOW, DELAYED, NAMED]

    look_at(three_hosts.file, look, viewport=_DESKTOP)


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [(_DESKTOP, "light"), (_PHONE, "dark")],
    ids=["desktop", "phone"],
)
def test_it_can_be_read_on_a_phone_and_in_the_dark(
    three_hosts: Reported, viewport: Any, scheme: str
) -> None:
    def brightness(page: Page, name: str) -> int:
        style = f"getComputedStyle(document.querySelector('section')).{name}"
        return sum(map(int, re.findall(r"\d+", page.evaluate(style))[:3]))

    def look(page: Page) -> None:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= viewport["width"]
        back, ink = brightness(page, "backgroundColor"), brightness(page, "color")
        assert (back < ink) == (scheme == "dark")
        assert abs(back - ink) > 3 * 128
        labels = page.locator(".plot span:visible")
        size = "spans => spans.map(s => s.getBoundingClientRect().height)"
        assert min(labels.evaluate_all(size)) >= 12

    look_at(three_hosts.file, look, viewport=viewport, color_scheme=scheme)


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_it_is_written_under_any_reactor(
    site: Callable[..., Site], tmp_path: Path, reactor: Reactor
) -> None:
    file = tmp_path / "report.html"
    file.write_text("an older report")
    settings = fixed(20, POLITENESS_REPORT=str(file))
    server = site(3)
    result = crawl(urls=server.page_urls(), settings=settings, reactor=reactor)
    assert read_report(file).total["served"] == 3
    assert f"Wrote the report to {file}" in result.log
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_killed_crawl_leaves_a_report_and_its_next_run_adds_to_it(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    file, server = tmp_path / "report.html", site(100)
    options: dict[str, Any] = {
        "urls": server.page_urls(),
        "settings": fixed(
            20 / 1.5, POLITENESS_REPORT=str(file), JOBDIR=str(tmp_path / "job")
        ),
    }
    with start_crawl(**options) as running:
        while not file.exists():
            assert running.process.poll() is None, running.log_so_far()
            time.sleep(0.05)
        running.kill()
        running.process.wait()
    killed = read_report(file)
    seen = len(server.arrivals)
    assert killed.is_running
    assert "still running after" in render(killed)
    assert 0 < killed.total["served"] <= seen
    result = crawl(**options)
    job = read_report(file)
    assert (job.finish_reason, job.runs) == ("finished", 2)
    received = result.stats["response_received_count"]
    assert job.total["served"] == killed.total["served"] + received
    assert job.started == killed.started
    assert job.seconds > killed.seconds
    assert job.total.series is not None
    assert sum(job.total.series.sent) == pytest.approx(job.total["sent"], rel=0.02)


def test_what_a_job_kept_of_its_runs_may_be_damaged(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "politeness-report.json").write_text('{"version": 7}')
    file = tmp_path / "report.html"
    settings = fixed(20, POLITENESS_REPORT=str(file), JOBDIR=str(job))
    result = crawl(urls=site(2).page_urls(), settings=settings)
    assert "The report leaves out the earlier runs of this job" in result.log
    assert read_report(file).runs == 1


class LosesFolder:
    """Takes away the folder of the report while the crawl runs."""

    async def process_request(self, request: Any) -> None:
        shutil.rmtree(request.meta["folder"], ignore_errors=True)


def test_a_report_that_cannot_be_written_spoils_no_crawl(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    settings = fixed(
        20,
        POLITENESS_REPORT=str(folder / "report.html"),
        DOWNLOADER_MIDDLEWARES={LosesFolder: 500},
    )
    requests = [{"url": url, "meta": {"folder": folder}} for url in site(2).page_urls()]
    result = crawl(requests=requests, settings=settings)
    assert result.stats["finish_reason"] == "finished"
    assert "ERROR: Cannot write the report" in result.log
    assert "Traceback" not in result.log
