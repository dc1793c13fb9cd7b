"""Logs, counts and signals what happens to slots."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from scrapy_politeness import signals
from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.pace import NO_WAIT
from scrapy_politeness.core.text import limits
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe import figures
from scrapy_politeness.observe.crawl_log import log_summary
from scrapy_politeness.observe.rate_log import (
    RateLog,
    SlotLog,
    reason_of,
    was_bad_luck,
)

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.learned import Learned
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.route import Flight
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.tally import Tallies, Tally
    from scrapy_politeness.observe.timeline import Sampler

logger = logging.getLogger(__name__)

# slot_slowed is not sent for rates that fall by less.
_SLOWER = 0.95

# How many slots have stats of their own.
MOST_IN_STATS = 20

# Seconds of waiting after which a crawl may seem to hang.
_LONG_WAIT = 30


class Events:
    def __init__(
        self, crawler: Crawler, tallies: Tallies, sampler: Sampler | None = None
    ) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._crawler = crawler
        self._tallies = tallies
        self._sampler = sampler
        self._log = SlotLog(logger, crawler.spider)
        self._rates = RateLog(crawler.spider)

    def sent(self, flight: Flight, asked_at: float) -> None:
        """A request that reached the gate at ``asked_at`` was sent."""
        slot = flight.route.slot
        tally = self._tallies.sent(flight, asked_at)
        if self._sampler is not None:
            self._sampler.sent(slot, tally, flight.permit)
        if tally.waited > _LONG_WAIT and not tally.logged_waiting:
            tally.logged_waiting = True
            self._warn_of_waiting(slot, tally)
        if tally.held_since is not None:
            self._log_wait(slot, tally.held_since)

    def queued(self, slot: Slot | None, now: float) -> None:
        if slot is not None:
            self._tallies.queued(slot.key, now)
            self._log_wait(slot, now)

    def rescheduled(self, slot_key: str) -> None:
        self._stats.inc_value("politeness/rescheduled")
        self._tallies.of(slot_key).rescheduled += 1

    def given_up(self, slot_key: str) -> None:
        self._stats.inc_value("politeness/given_up")
        self._tallies.of(slot_key).given_up += 1

    def unserved(self, slot: Slot) -> None:
        """A response that was counted as served turns out to be none."""
        tally = self._tallies.of(slot.key)
        tally.served -= tally.served > 0

    def blocked(self, slot: Slot, reason: str) -> None:
        self._stats.inc_value("politeness/blocked")
        self._tallies.of(slot.key).blocked_because = reason
        self._send(signals.slot_blocked, slot, reason=reason)

    def settled(self, slot: Slot, outcome: Outcome, change: Change, now: float) -> None:
        tally = self._tallies.settled(slot.key, outcome)
        if outcome.verdict.is_refusal:
            self._stats.inc_value("politeness/refused")
        elif outcome.verdict is Verdict.TIMED_OUT:
            self._stats.inc_value("politeness/timed_out")
        if self._sampler is not None:
            self._sampler.settled(slot, tally, outcome, now)
        is_news = not change.is_none
        if is_news:
            if change.cut or change.relieved:
                self._stats.inc_value("politeness/slowdowns")
            elif change.new_rate > change.old_rate:
                self._stats.inc_value("politeness/speedups")
            if change.pause:
                self._paused(slot, tally, Cause.HOST, now)
        self._rates.settled(slot, tally, outcome, change)
        if is_news:
            if was_bad_luck(tally, outcome, change):
                self._stats.inc_value("politeness/bad_luck")
            self._signal_settled(slot, outcome, change)

    def paused_elsewhere(self, slot: Slot, seconds: float) -> None:
        text = "pausing for %(pause).1f s, as the host asked another process"
        self._log.info(slot, text, pause=seconds)
        self._pause(slot, Cause.HOST, seconds, "another process")

    def robots_delay(self, slot: Slot, delay: float) -> None:
        self._stats.inc_value("politeness/robots_delays")
        text = "%(delay).3g s between requests, because of robots.txt"
        self._log.info(slot, text, delay=delay)

    def outside_hours(self, slot: Slot, hours: Hours, seconds: float) -> None:
        text = "robots.txt allows visits %(hours)s; pausing for %(wait).2g h"
        self._log.info(slot, text, hours=hours, wait=seconds / 3600)
        self._pause(slot, Cause.ROBOTS, seconds, "Visit-time")

    def robots_unreachable(self, slot: Slot, seconds: float) -> None:
        text = "robots.txt is unreachable; requesting it again in %(seconds).1f s"
        self._log.debug(slot, text, seconds=seconds)
        self._pause(slot, Cause.ROBOTS, seconds, "robots.txt is unreachable")

    def held(self, slot: Slot, seconds: float) -> None:
        text = "held for %(seconds).1f s by the spider"
        self._log.info(slot, text, seconds=seconds)
        self._pause(slot, Cause.SPIDER, seconds, "the spider")

    def still_paused(self, slot: Slot, seconds: float) -> None:
        text = "pausing for another %(seconds).1f s, as the host asked an earlier run"
        self._log.info(slot, text, seconds=seconds)
        self._pause(slot, Cause.HOST, seconds, "an earlier run")

    def recalled(self, slot: Slot, learned: Learned) -> None:
        self._stats.inc_value("politeness/recalled")
        text = "using what an earlier run learned: %(limits)s"
        known = "; ".join(limits(learned))
        self._log.log(self._rates.level(slot), slot, text, limits=known)

    def closed(self, census: Census) -> None:
        log_summary(census, self._crawler.spider)
        self._stats.set_value("politeness/slots", len(census.slots) + census.others)
        self._stats.set_value("politeness/held_seconds", census.total.waited)
        for view in census.top(MOST_IN_STATS):
            for figure in figures.FIGURES:
                if figure.stat and (value := figure.read(view)):
                    key = f"politeness/slots/{printable(view.key)}/{figure.stat}"
                    self._stats.set_value(key, value)

    def resumed(self, slot: Slot) -> None:
        self._log.debug(slot, "no longer paused")
        if self._sampler is not None:
            tally = self._tallies.of(slot.key)
            self._sampler.resumed(slot, tally, time.monotonic())
        self._send(signals.slot_resumed, slot)

    def reconfigured(self, slot: Slot, rate: float | None) -> None:
        if rate is None:
            self._log.info(slot, "reset by the spider")
        else:
            self._log.info(slot, "rate set to %(rate).3g/s by the spider", rate=rate)

    def proxy_slowed(self, budget: Budget, outcome: Outcome) -> None:
        self._stats.inc_value("politeness/proxy_slowdowns")
        logger.info(
            "Proxy %(proxy)s: slowed down to %(rate).3g/s because of %(reason)s",
            {
                "proxy": printable(budget.key),
                "rate": 1 / budget.interval,
                "reason": outcome.reason,
            },
            extra={"spider": self._crawler.spider},
        )

    def wait_capped(self, slot: Slot, wait: float, longest: float) -> None:
        self._log.warning(
            slot,
            "Retry-After of %(wait).6g s is longer than "
            "POLITENESS_RETRY_AFTER_MAX; waiting %(longest).6g s",
            wait=wait,
            longest=longest,
        )

    def _pause(self, slot: Slot, cause: Cause, seconds: float, reason: str) -> None:
        self._paused(slot, self._tallies.of(slot.key), cause, time.monotonic())
        self._send(signals.slot_paused, slot, seconds=seconds, reason=reason)

    def _paused(self, slot: Slot, tally: Tally, cause: Cause, now: float) -> None:
        tally.paused_because = cause
        if self._sampler is not None:
            self._sampler.paused(slot, tally, now)

    def _warn_of_waiting(self, slot: Slot, tally: Tally) -> None:
        self._log.warning(
            slot,
            "requests have waited for more than %(longest)d s in total, mostly because "
            "of %(cause)s; now sending %(rate).3g/s, with %(pending)d waiting. Nothing "
            "is stuck; this is logged once per slot",
            longest=_LONG_WAIT,
            cause=tally.main_cause.value,
            rate=slot.rate,
            pending=self._tallies.pending(slot.key),
        )

    def _log_wait(self, slot: Slot, now: float) -> None:
        if not logger.isEnabledFor(logging.DEBUG):
            return
        if (delay := slot.ready_at - now) >= NO_WAIT:
            text = "next request in %(delay).2f s, %(pending)d waiting"
            pending = self._tallies.pending(slot.key)
            self._log.debug(slot, text, delay=delay, pending=pending)

    def _signal_settled(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        reason = reason_of(outcome, change)
        is_asked = change.cut or change.relieved or outcome.quota is not None
        if is_asked and change.new_rate < _SLOWER * change.old_rate:
            rates = {"old_rate": change.old_rate, "new_rate": change.new_rate}
            self._send(signals.slot_slowed, slot, reason=reason, **rates)
        if change.pause:
            self._send(signals.slot_paused, slot, seconds=change.pause, reason=reason)
        if change.settled_at is not None:
            self._send(signals.slot_settled, slot, rate=change.settled_at)

    def _send(self, signal: object, slot: Slot, **arguments: object) -> None:
        self._crawler.signals.send_catch_log(signal, slot=slot.key, **arguments)
