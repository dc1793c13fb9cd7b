"""What people read in the log and in the stats."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.scheduling.dead_hosts import DeadHosts
from scrapy_politeness.simulator import (
    ConnectionLimit,
    QueueingServer,
    RandomFailures,
    RetryAfter,
    Server,
    TokenBucket,
    refused,
    simulate,
)
from tests.support.observed import Observed, ObservedCrawl

if TYPE_CHECKING:
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Permit


def new_slot(key: str = "wiki.example.org", **bounds: Any) -> Slot:
    return Slot(key, Bounds(**bounds), spacing=0.0, concurrency=8)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == level]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (RetryAfter(TokenBucket(2, burst=4)), "just under what the host allows"),
        (
            ConnectionLimit(3, 0.5, round_trip=0.05),
            "at once, since it has refused",
        ),
        (QueueingServer(5), "responses get slower as the rate rises"),
    ],
    ids=["rate", "connections", "latency"],
)
def test_an_hour_with_one_host_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture, server: Server, told: str
) -> None:
    caplog.set_level(logging.INFO)
    seconds = 3600
    report = simulate([ObservedCrawl().observe(new_slot())], server, seconds=seconds)
    news = lines(caplog, logging.INFO)
    assert any(told in line for line in news)
    # Each refusal has a line of its own, and one when that is over.
    assert len(news) < 20 + report.refused
    assert len(lines(caplog, logging.WARNING)) <= report.refused + 1


def test_a_slot_is_warned_of_once_when_its_requests_have_waited_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = new_slot(start_rate=0.5, max_rate=0.5)
    simulate([ObservedCrawl(7).observe(slow)], TokenBucket(4, burst=8), seconds=29)
    assert not lines(caplog, logging.WARNING)
    simulate([ObservedCrawl(7).observe(slow)], TokenBucket(4, burst=8), seconds=300)
    [warning] = lines(caplog, logging.WARNING)
    assert "waited for more than 30 s" in warning
    assert "because of your settings; now sending 0.5/s, with 7 waiting" in warning


@pytest.mark.parametrize(
    ("rate", "lowest", "told"),
    [
        (
            8.0,
            0.1,
            "wiki.example.org: rate 8/s → 4/s because of 429; pausing for 5.0 s",
        ),
        (
            8.0,
            7.999,
            "wiki.example.org: rate 8/s → 7.999/s because of 429; pausing for",
        ),
        (8.0, 8.0, "pausing for 5.0 s because of 429; the rate stays at 8/s"),
    ],
)
def test_a_rate_that_hardly_falls_is_not_told_as_twice_the_same(
    caplog: pytest.LogCaptureFixture, rate: float, lowest: float, told: str
) -> None:
    observed = ObservedCrawl().observe(new_slot(start_rate=rate, min_rate=lowest))
    permit = observed.take(0.0)
    observed.settle(permit, Outcome(Verdict.REFUSED, "429", 5.0), 0.1, 0.0)
    [warning] = lines(caplog, logging.WARNING)
    assert told in warning


def test_a_host_with_bad_luck_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    observed_crawl = ObservedCrawl()
    unlucky = RandomFailures(Server(10.0), 0.02, refused(), seed=1)
    report = simulate([observed_crawl.observe(new_slot())], unlucky, seconds=1800)
    told = [line for line in caplog.messages if "whatever the rate" in line]
    [share] = re.findall(r"about ([\d.]+) % of the requests fail", "\n".join(told))
    assert float(share) == pytest.approx(2, abs=2)
    known = caplog.messages.index(told[0])
    # Few lines follow: long silences, and places where it settles.
    later = caplog.records[known + 1 :]
    assert len(later) < 0.1 * report.refused
    warnings = [r.getMessage() for r in later if r.levelno == logging.WARNING]
    assert all(re.search(r"pausing for \d\d", w) for w in warnings if "rate" in w)
    # What is not told is counted.
    observed_crawl.events.closed(observed_crawl.census(1800))
    assert observed_crawl.crawler.stats is not None
    stats = observed_crawl.crawler.stats.get_stats()
    assert stats["politeness/bad_luck"] > 0.5 * report.refused
    place = "politeness/slots/wiki.example.org/"
    assert stats[f"{place}bad_luck"] == pytest.approx(0.02, abs=0.007)
    assert re.search(r"about [23] % fail whatever the rate", caplog.messages[-1])


@pytest.mark.parametrize(
    ("outcome", "level", "told"),
    [
        (
            Outcome(Verdict.REFUSED, "503", 60.0),
            logging.WARNING,
            "because of 503; pausing for 60.0 s",
        ),
        (Outcome(Verdict.REFUSED, "429"), logging.INFO, "because of 429"),
    ],
    ids=["a long silence", "one that speaks of the rate"],
)
def test_what_is_no_bad_luck_is_told_of_a_host_that_has_it(
    caplog: pytest.LogCaptureFixture, outcome: Outcome, level: int, told: str
) -> None:
    observed = ObservedCrawl().observe(new_slot())
    unlucky = RandomFailures(Server(10.0), 0.05, refused(), seed=1)
    simulate([observed], unlucky, seconds=600)
    assert observed.slot.bad_luck
    caplog.clear()
    caplog.set_level(logging.INFO)
    permit = observed.take(2000.0)
    observed.settle(permit, outcome, 2000.1, 0.0)
    [line] = lines(caplog, level)
    assert told in line


@pytest.mark.parametrize(
    "server",
    [
        Server(10.0),
        RandomFailures(Server(10.0), 0.01, refused(), seed=2),
        RetryAfter(TokenBucket(4, burst=8)),
        QueueingServer(5),
        ConnectionLimit(3, 0.5, round_trip=0.05),
    ],
    ids=["healthy", "bad luck", "limit", "queue", "connections"],
)
def test_no_limit_is_told_where_none_is_known(
    caplog: pytest.LogCaptureFixture, server: Server
) -> None:
    caplog.set_level(logging.DEBUG)
    observed = ObservedCrawl().observe(new_slot())
    checked = Checked(observed, caplog)
    simulate([checked], server, seconds=600)
    assert "pausing for 0.0 s" not in caplog.text


class Checked:
    """A law that looks into the log after each answer."""

    def __init__(self, observed: Observed, caplog: pytest.LogCaptureFixture) -> None:
        self._observed = observed
        self._caplog = caplog
        self.take = observed.take

    @property
    def ready_at(self) -> float:
        return self._observed.ready_at

    @property
    def has_room(self) -> bool:
        return self._observed.has_room

    def settle(
        self, permit: Permit, outcome: Outcome, now: float, chance: float
    ) -> Change:
        before = len(self._caplog.records)
        change = self._observed.settle(permit, outcome, now, chance)
        for record in self._caplog.records[before:]:
            if "what the host allows" in record.getMessage():
                assert self._observed.slot.ceiling is not None
        return change


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (0, []),
        (1, ["its 1 waiting request will be given up"]),
        (2, ["its 2 waiting requests will be given up"]),
    ],
)
def test_a_host_that_only_refuses_is_told_of_if_something_waits_for_it(
    caplog: pytest.LogCaptureFixture, waiting: int, told: list[str]
) -> None:
    slot, observed_crawl = new_slot(), ObservedCrawl()
    dead_hosts = DeadHosts(
        Policy.read(Settings()),
        Mock(),
        observed_crawl.events,
        lambda key: waiting,
        lambda key: slot,
        None,
    )
    refused = Outcome(Verdict.REFUSED, "429")
    for _ in range(3):
        change = slot.settle(slot.take(slot.ready_at), refused, slot.ready_at, 0.0)
        dead_hosts.learned(slot, refused, change)
    warnings = lines(caplog, logging.WARNING)
    start = (
        "wiki.example.org: nothing served, 3 failures in a row, the last because of "
        "429. After 1 d of that (POLITENESS_GIVE_UP_AFTER), "
    )
    assert warnings == [f"{start}{end}" for end in told]


def test_of_thousands_of_hosts_only_slowdowns_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    observed_crawl = ObservedCrawl()
    for number in range(300):
        observed = observed_crawl.observe(new_slot(f"host{number}.example"))
        simulate([observed], TokenBucket(50, burst=50), seconds=25)
    assert len(lines(caplog, logging.INFO)) < 300
    permit = observed.take(30.0)
    observed.settle(permit, Outcome(Verdict.REFUSED, "429"), 30.1, 0.0)
    assert "host299.example: rate" in lines(caplog, logging.WARNING)[-1]
