"""Progress, as it looks in a terminal and in a log."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pyte
import pytest
from rich.console import Console
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.config.settings import PolicyError
from scrapy_politeness.core.health import Health, Status
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.observe.census import Census, SlotView
from scrapy_politeness.observe.live import LiveDisplay, draw
from scrapy_politeness.observe.progress import EtaEstimate, Progress
from scrapy_politeness.observe.tally import Tally
from tests.support.crawl import REACTORS, Reactor, crawl, start_crawl
from tests.support.hostile import HOSTILE_NAMES, is_harmless
from tests.support.settings import fixed
from tests.support.site import Answer
from tests.support.spiders import Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.http import Response

    from tests.support.crawl import RunningCrawl
    from tests.support.site import Site

COLUMNS, LINES = 200, 50
XTERM: dict[str, Any] = {"terminal": (COLUMNS, LINES), "env": {"TERM": "xterm"}}

_LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[\S+\] [A-Z]+: .+")


def rendered(raw: str, columns: int = COLUMNS) -> list[str]:
    """Return all lines that a terminal shows in the end, scrolled away or not."""
    screen = pyte.HistoryScreen(columns, LINES, history=100_000)
    pyte.Stream(screen).feed(raw)
    past = [
        "".join(line[column].data for column in range(columns))
        for line in screen.history.top
    ]
    return [line.rstrip() for line in [*past, *screen.display]]


def wait_for_screen(running: RunningCrawl, text: str) -> list[str]:
    """Wait until the terminal shows a text just now; return all that it shows."""
    for _ in range(100):
        running.wait_for_log(text)
        lines = rendered(running.log_so_far())
        if any(text in line for line in lines):
            return lines
    raise TimeoutError(text)


class Talkative(Pages):
    """Prints to both streams, in whole lines and in pieces."""

    def parse(self, response: Response) -> Iterator[Any]:
        print(f"printed {response.url}")
        sys.stderr.write("in")
        sys.stderr.write(f" pieces {response.url}\n")
        self.logger.warning("logged %s", response.url)
        yield from super().parse(response)


@pytest.mark.everywhere
@pytest.mark.parametrize("reactor", REACTORS)
def test_in_a_terminal_counts_are_right_and_nothing_else_is_disturbed(
    site: Callable[..., Site], reactor: Reactor
) -> None:
    pages = site(30)
    done = crawl(
        Talkative,
        urls=pages.page_urls(),
        settings=fixed(20, LOG_LEVEL="INFO"),
        reactor=reactor,
        **XTERM,
    )
    assert done.returncode == 0
    lines = rendered(done.log)
    [counts] = [line for line in lines if "done" in line]
    assert re.fullmatch(r"pages: 30 done, 0 waiting, 0 in progress, after \d s", counts)
    assert len([line for line in lines if line.startswith("  127.0.0.1")]) == 1
    for url in pages.page_urls():
        assert f"printed {url}" in lines
        assert f"in pieces {url}" in lines
        assert sum(line.endswith(f"WARNING: logged {url}") for line in lines) == 1
    logged = [line for line in lines if re.match(r"\d{4}-", line)]
    assert all(_LOGGED.fullmatch(line) for line in logged)
    assert "Spider closed (finished)" in logged[-1]


def test_it_shows_what_waits_and_for_how_long_a_host_is_paused(
    site: Callable[..., Site],
) -> None:
    def refuse_some(path: str, nth: int) -> Answer | None:
        refused = path == "/page/8" and nth == 1
        return Answer(429, {"Retry-After": "4"}) if refused else None

    pages = site(12, answer=refuse_some)
    settings = fixed(10, LOG_LEVEL="WARNING")
    with start_crawl(urls=pages.page_urls(), settings=settings, **XTERM) as running:
        lines = wait_for_screen(running, "paused, ")
        assert re.search(
            r"^pages: \d+ done, \d+ waiting, .* left$", "\n".join(lines), re.M
        )
        [row] = [line for line in lines if line.startswith("  127.0.0.1")]
        assert re.fullmatch(
            r"  127\.0\.0\.1 +\S+/s +\S+ +\d+  paused, [1-4] s left", row
        )
        done = running.wait()
    [summary] = [line for line in rendered(done.log) if "done" in line]
    assert "12 done, 0 waiting, 0 in progress, 1 refused" in summary


def test_piped_there_is_a_line_now_and_then_and_nothing_else(
    site: Callable[..., Site],
) -> None:
    done = crawl(
        urls=site(25).page_urls(),
        settings=fixed(10, LOG_LEVEL="INFO", LOGSTATS_INTERVAL=1),
        env={"TERM": "xterm"},
    )
    told = re.findall(r"INFO: Progress: (\d+) done, (\d+) waiting.*", done.log)
    # One a second; the crawl takes a little more than two.
    assert 2 <= len(told) <= done.seconds
    assert "\x1b" not in done.log
    assert "\r" not in done.log
    assert re.search(r"at least \d+ s left; 127.0.0.1: 10/s, healthy$", done.log, re.M)


@pytest.mark.parametrize(
    "settings",
    [
        {"POLITENESS_PROGRESS": False},
        {"LOGSTATS_INTERVAL": 0},
        {"FEEDS": {"stdout:": {"format": "jsonlines"}}, "LOGSTATS_INTERVAL": 60},
    ],
    ids=["off", "no stats", "items on stdout"],
)
def test_it_stays_away_where_it_is_not_wanted(
    site: Callable[..., Site], settings: dict[str, Any]
) -> None:
    done = crawl(
        urls=site(15).page_urls(),
        settings=fixed(10, LOG_LEVEL="WARNING", **settings),
        **XTERM,
    )
    assert "done" not in done.log
    assert "\x1b" not in done.log


class Tty(io.TextIOWrapper):
    """In the place of both streams, as long as the test itself runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(io.BytesIO(), "utf-8", newline="\r\n", write_through=True)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", self)
        monkeypatch.setattr(sys, "stdout", self)

    def isatty(self) -> bool:
        return True

    def rendered(self) -> list[str]:
        self.seek(0)
        return rendered(bytes(self.buffer.read()).decode())


def test_two_crawls_share_a_screen_and_give_the_streams_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tty = Tty(monkeypatch)
    handler = logging.StreamHandler()
    logging.root.addHandler(handler)
    try:
        display = LiveDisplay()
        display.show("a", "a: 1", census())
        display.show("b", "b: 1", census(slot("host.example")))
        logging.warning("first")
        # As Scrapy does for each crawl that is made.
        later = logging.StreamHandler()
        *shown, row = tty.rendered()[:5]
        assert [line.split()[0] for line in shown] == ["first", "a:", "b:", "host"]
        assert row.startswith("  host.example")
        display.hide("a", "a: over", census())
        print("printed")
        logging.warning("second")
        display.show("b", "b: 2", census())
        later.stream.write("third\n")
        assert tty.rendered()[:6] == [
            "first",
            "a: over",
            "printed",
            "second",
            "third",
            "b: 2",
        ]
        sys.stdout.write("a rest")
        display.hide("b", "b: over", census())
        assert handler.stream is sys.stderr is sys.stdout is tty
        later.stream.write(" and a late word\n")
        # Older versions of Rich leave an empty line in between.
        rest = [line for line in tty.rendered()[5:] if line]
        assert rest == ["b: over", "a rest and a late word"]
    finally:
        logging.root.removeHandler(handler)


def test_bytes_find_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    tty = Tty(monkeypatch)
    display = LiveDisplay()
    display.show("a", "a: 1", census())
    sys.stdout.buffer.write(b"bytes\r\n")
    display.show("a", "a: 2", census())
    assert tty.rendered()[:3] == ["bytes", "a: 2", ""]
    display.hide("a", "a: over", census())


def test_threads_may_log_while_the_display_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tty = Tty(monkeypatch)
    handler = logging.StreamHandler()
    logging.root.addHandler(handler)
    display = LiveDisplay()

    def log() -> None:
        for number in range(300):
            logging.warning("line %d", number)

    try:
        thread = threading.Thread(target=log, daemon=True)
        thread.start()
        while thread.is_alive():
            display.show("a", "a: 1", census())
            display.hide("a", "", census())
    finally:
        logging.root.removeHandler(handler)
    lines = tty.rendered()
    assert [line for line in lines if line] == [f"line {n}" for n in range(300)]


def test_a_terminal_that_is_gone_does_not_stop_the_end_of_a_crawl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tty = Tty(monkeypatch)
    policy = Policy.read(Settings({"POLITENESS_PROGRESS": True}))
    live = Progress(policy, lambda age: census(), None)
    live._show()
    assert sys.stderr is not tty
    monkeypatch.setattr(tty, "write", Mock(side_effect=OSError(5, "EIO")))
    live.stop()
    assert sys.stderr is tty


def census(
    *slots: SlotView, pending: int = 0, done: int = 0, at: float = 0.0
) -> Census:
    return Census(
        at=at,
        slots=slots,
        other=Tally(),
        others=0,
        total=Tally(),
        done=done,
        pending=pending,
        in_progress=0,
    )


def slot(
    key: str, rate: float = 2.0, pending: int = 0, silent: float = 0.0
) -> SlotView:
    health = Health.PAUSED if silent else Health.HEALTHY
    return SlotView(key, Status(health, rate, 4.0, silent, 0, 8), pending, Tally())


def drawn(census: Census, columns: int, lines: int) -> list[str]:
    console = Console(width=columns, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        console.print(draw("heading", census, columns, lines))
    return capture.get().splitlines()


@pytest.mark.parametrize("columns", [20, 40, 80, 300])
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_do_no_harm_in_the_display(name: str, columns: int) -> None:
    lines = drawn(census(slot(name, silent=9.0)), columns, 24)
    assert len(lines) == 3
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert is_harmless("\n".join(plain))
    shown = rendered("\r\n".join(lines), columns)
    assert shown[3] == ""  # nothing was wrapped


def test_a_small_terminal_gets_the_counts_alone() -> None:
    hosts = [slot(f"host{number}.example") for number in range(100)]
    assert len(drawn(census(*hosts), 80, 5)) == 1
    lines = drawn(census(*hosts), 80, 24)
    assert len(lines) == 11
    assert "and 92 more" in lines[-1]


def test_the_slowest_slot_decides_how_long_it_takes() -> None:
    estimate = EtaEstimate(None)
    assert estimate.update(census(slot("a"))) is None
    slots = (slot("a", 2.0, 10), slot("b", 0.5, 10, silent=40.0))
    assert str(estimate.update(census(*slots, pending=20))) == "at least 1 min left"
    # A minute later nothing new was found, and one is done.
    later = census(*slots, pending=19, done=1, at=61.0)
    assert str(estimate.update(later)) == "1 min left"
    more = census(*slots, pending=50, done=1, at=62.0)
    assert str(estimate.update(more)) == "at least 1 min left"
    overall = EtaEstimate(Limit.parse("1/10s"))
    eta = overall.update(census(*slots, pending=20))
    assert eta is not None
    assert eta.seconds == pytest.approx(200, rel=0.01)


def test_without_rich_a_terminal_gets_lines_and_a_demand_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Tty(monkeypatch)

    def is_live() -> bool:
        policy = Policy.read(Settings())
        return Progress(policy, lambda age: census(), None).display is not None

    assert is_live()
    for module in ("config.rules", "observe.progress"):
        find_spec = f"scrapy_politeness.{module}.find_spec"
        monkeypatch.setattr(find_spec, lambda name: None)
    assert not is_live()
    with pytest.raises(PolicyError, match=r"PROGRESS=True: needs .* rich: pip"):
        Policy.read(Settings({"POLITENESS_PROGRESS": True}))
