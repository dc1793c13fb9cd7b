"""When a host that only refuses is given up, on virtual time."""

from __future__ import annotations

import pytest

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.outage import Outage
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.slot import Slot

DAY, HOUR = 86400.0, 3600.0

SERVED = Outcome(Verdict.SERVED)
REFUSED = Outcome(Verdict.REFUSED, "429")
TIMED_OUT = Outcome(Verdict.TIMED_OUT, "timeout")
FAILED = Outcome(Verdict.FAILED, "500")


def is_given_up(*outcomes: Outcome, every: float = HOUR, patience: float = DAY) -> bool:
    outage = Outage()
    for nth, outcome in enumerate(outcomes):
        outage.observe(outcome, nth * every, is_news=True)
    return outage.is_dead(patience)


@pytest.mark.parametrize(
    ("outcome", "latency", "sent"),
    [
        # An hour of silence each: as many as the day has hours.
        (Outcome(Verdict.REFUSED, "429", wait=HOUR), 0.1, 25),
        # Every 25 s at first, at last every 300 s.
        (REFUSED, 0.1, 342),
        # The timeout is a part of the silence.
        (TIMED_OUT, 180.0, 300),
    ],
)
def test_a_host_that_never_serves_is_given_up_after_a_day(
    outcome: Outcome, latency: float, sent: int
) -> None:
    """However many requests wait for it."""
    slot = Slot("a.example", Bounds(), spacing=0.0, concurrency=8)
    now, asked = 0.0, 0
    while slot.outage is None or not slot.outage.is_dead(DAY):
        now = max(now, slot.ready_at)
        permit = slot.take(now)
        now += latency
        slot.settle(permit, outcome, now, 0.0)
        asked += 1
    assert asked == pytest.approx(sent, abs=2)
    assert DAY <= now < DAY + 2 * HOUR


def test_an_answer_ends_an_outage() -> None:
    assert is_given_up(*[REFUSED] * 30)
    assert not is_given_up(*[REFUSED] * 20, SERVED, *[REFUSED] * 20)


def test_a_host_may_be_busy_for_too_long() -> None:
    assert is_given_up(*[Outcome(Verdict.BUSY, "MediaWiki readonly")] * 30)


def test_failures_neither_begin_nor_end_an_outage() -> None:
    assert is_given_up(*[REFUSED, FAILED] * 15)
    assert not is_given_up(*[FAILED] * 100)


def test_redirects_that_ask_for_silence_lead_nowhere() -> None:
    redirect = Outcome(Verdict.SERVED, "redirect", wait=HOUR)
    assert is_given_up(*[redirect] * 30)
    assert not is_given_up(*[redirect, SERVED] * 30)


def test_a_host_that_is_asked_once_a_day_is_not_given_up_at_once() -> None:
    assert not is_given_up(*[REFUSED] * 4, every=DAY)
    assert is_given_up(*[REFUSED] * 5, every=DAY)


def test_what_was_refused_together_counts_once() -> None:
    outage = Outage()
    for nth in range(50):
        outage.observe(REFUSED, nth * HOUR, is_news=nth % 25 == 0)
    assert not outage.is_dead(DAY)


def test_a_patience_of_0_is_endless() -> None:
    assert not is_given_up(*[REFUSED] * 1000, patience=0.0)
