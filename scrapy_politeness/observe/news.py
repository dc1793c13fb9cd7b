"""What happens to a slot, told in the log, the stats and by signals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness import signals

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.core.learned import Learned
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.route import Flight
    from scrapy_politeness.core.scope import Change, Scope
    from scrapy_politeness.observe.tally import Tallies
    from scrapy_politeness.policy import Policy

logger = logging.getLogger(__name__)

# A rate that falls by less is fine tuning.
_SLOWER = 0.95


class News:
    def __init__(self, crawler: Crawler, tallies: Tallies) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._crawler = crawler
        self._tallies = tallies
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})

    def opened(self, policy: Policy, *, by_queue: bool) -> None:
        bounds = policy.bounds
        self._log.info(
            "Polite crawl: each slot starts at %(start).3g/s and adapts between "
            "%(low).3g/s and %(high).3g/s; robots.txt delays are %(robots)s; "
            "exempt: %(exempt)s",
            {
                "start": bounds.start_rate,
                "low": bounds.min_rate,
                "high": bounds.max_rate,
                "robots": "obeyed" if policy.robots else "not read",
                "exempt": ", ".join(sorted(policy.exempt)) or "nobody",
            },
        )
        if policy.spacing * bounds.max_rate > 1:
            self._log.info(
                "DOWNLOAD_DELAY=%(delay).3g keeps each slot at %(rate).3g/s at most",
                {"delay": policy.spacing, "rate": 1 / policy.spacing},
            )
        for what, limit in (
            ("all requests together", policy.global_limit),
            ("each server address", policy.ip_limit),
            ("each proxy", policy.proxy_limit),
        ):
            if limit is not None:
                self._log.info(
                    "At most %(count)d requests in %(period).6g s for %(what)s",
                    {"count": limit.count, "period": limit.period, "what": what},
                )
        if policy.state_path is not None:
            self._log.info(
                "Learned rates are kept in %(path)s", {"path": policy.state_path}
            )
        if not by_queue:
            self._log.warning(
                "The scheduler does not use scrapy_politeness.PolitePriorityQueue: "
                "requests that must wait for their host wait in the downloader, where "
                "they count towards CONCURRENT_REQUESTS and hold up other hosts"
            )

    def sent(self, flight: Flight, asked_at: float) -> None:
        """A request that came to the gate at ``asked_at`` has passed it."""
        self._tallies.sent(flight, asked_at)

    def rescheduled(self, slot: str) -> None:
        self._stats.inc_value("politeness/rescheduled")
        self._tallies.of(slot).rescheduled += 1

    def settled(self, slot: Scope, outcome: Outcome, change: Change) -> None:
        """A request of this slot is over."""
        self._tallies.settled(slot.key, outcome)
        if outcome.verdict.is_overload:
            self._stats.inc_value(f"politeness/{outcome.verdict.name.lower()}")
        details = {
            "slot": slot.key,
            "reason": _reason(outcome, change),
            "old": change.old_rate,
            "new": change.new_rate,
            "pause": change.pause,
        }
        if change.cut:
            self._stats.inc_value("politeness/slowdowns")
            self._log.warning(
                "%(slot)s: rate %(old).3g/s → %(new).3g/s because of %(reason)s; "
                "silent for %(pause).1f s",
                details,
            )
        elif change.relieved:
            self._stats.inc_value("politeness/slowdowns")
            self._log.info(
                "%(slot)s: rate %(old).3g/s → %(new).3g/s because of %(reason)s",
                details,
            )
        elif change.new_rate > change.old_rate:
            self._stats.inc_value("politeness/speedups")
            self._log.debug(
                "%(slot)s: rate %(old).3g/s → %(new).3g/s after sustained success",
                details,
            )
        elif change.pause:
            self._log.info(
                "%(slot)s: silent for %(pause).1f s because of %(reason)s", details
            )
        self._signal_settled(slot, outcome, change)

    def robots_delay(self, slot: Scope, delay: float) -> None:
        self._stats.inc_value("politeness/robots_delays")
        self._log.info(
            "%(slot)s: %(delay).3g s between requests, because of robots.txt",
            {"slot": slot.key, "delay": delay},
        )

    def outside_hours(self, slot: Scope, hours: Hours, seconds: float) -> None:
        self._log.info(
            "%(slot)s: robots.txt allows visits %(hours)s; silent for %(wait).2g h",
            {"slot": slot.key, "hours": hours, "wait": seconds / 3600},
        )
        self._send(signals.slot_paused, slot, seconds=seconds, reason="Visit-time")

    def held(self, slot: Scope, seconds: float) -> None:
        self._log.info(
            "%(slot)s: held for %(seconds).1f s by the spider",
            {"slot": slot.key, "seconds": seconds},
        )
        self._send(signals.slot_paused, slot, seconds=seconds, reason="the spider")

    def still_silent(self, slot: Scope, seconds: float) -> None:
        self._log.info(
            "%(slot)s: still silent for %(seconds).1f s, since an earlier run",
            {"slot": slot.key, "seconds": seconds},
        )
        self._send(signals.slot_paused, slot, seconds=seconds, reason="an earlier run")

    def recalled(self, slot: Scope, learned: Learned) -> None:
        self._stats.inc_value("politeness/recalled")
        self._log.debug(
            "%(slot)s: goes on from what an earlier run has learned: %(limits)s",
            {
                "slot": slot.key,
                "limits": ", ".join(
                    f"{name} {value:.3g}" for name, value in learned.to_dict().items()
                ),
            },
        )

    def resumed(self, slot: Scope) -> None:
        self._log.debug("%(slot)s: no longer silent", {"slot": slot.key})
        self._send(signals.slot_resumed, slot)

    def reconfigured(self, slot: Scope, rate: float | None) -> None:
        if rate is None:
            self._log.info("%(slot)s: reset by the spider", {"slot": slot.key})
        else:
            self._log.info(
                "%(slot)s: rate set to %(rate).3g/s by the spider",
                {"slot": slot.key, "rate": rate},
            )

    def proxy_slowed(self, budget: Budget, outcome: Outcome) -> None:
        self._stats.inc_value("politeness/proxy_slowdowns")
        self._log.info(
            "Proxy %(proxy)s: slowed down to %(rate).3g/s because of %(reason)s",
            {
                "proxy": budget.key,
                "rate": 1 / budget.interval,
                "reason": outcome.reason,
            },
        )

    def wait_capped(self, slot: Scope, wait: float, longest: float) -> None:
        self._log.warning(
            "%(slot)s: Retry-After of %(wait).6g s is longer than "
            "POLITENESS_RETRY_AFTER_MAX; waiting %(longest).6g s",
            {"slot": slot.key, "wait": wait, "longest": longest},
        )

    def _signal_settled(self, slot: Scope, outcome: Outcome, change: Change) -> None:
        reason = _reason(outcome, change)
        told = change.cut or change.relieved or outcome.quota is not None
        if told and change.new_rate < _SLOWER * change.old_rate:
            rates = {"old_rate": change.old_rate, "new_rate": change.new_rate}
            self._send(signals.slot_slowed, slot, reason=reason, **rates)
        if change.pause:
            self._send(signals.slot_paused, slot, seconds=change.pause, reason=reason)
        if change.settled_at is not None:
            self._send(signals.slot_settled, slot, rate=change.settled_at)

    def _send(self, signal: object, slot: Scope, **arguments: object) -> None:
        self._crawler.signals.send_catch_log(signal, slot=slot.key, **arguments)


def _reason(outcome: Outcome, change: Change) -> str:
    if change.relieved:
        return "slow answers"
    return outcome.reason or "its quota"
