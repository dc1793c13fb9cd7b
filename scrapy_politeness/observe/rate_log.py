"""What is logged about a slot when its rate changes.

A rate changes with every probe, and a crawl may have thousands of slots: what would
flood the log is logged at DEBUG. INFO and WARNING are for refusals, for rates that
differ much from the last one logged, and for the rates where slots settle. That
requests to a host fail whatever the rate is logged once; from then on, a refusal is
logged only if a long pause follows.
"""

from __future__ import annotations

import logging
import math
from functools import partialmethod
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.pace import NO_WAIT
from scrapy_politeness.core.text import counted, percent
from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.tally import Tally

logger = logging.getLogger(__name__)

# Factors by which a rate differs much from the last one logged, and by which a slot has
# settled elsewhere.
_MUCH = 1.5
_MOVED = 1.25

# How many slots have their speedups logged.
_MOST_SLOTS = 50

# Seconds. A pause without a refusal is logged at INFO from here on.
_LONG_PAUSE = 10.0

_QUOTA = "its quota"

_RATE = "rate %(rates)s because of %(reason)s"
_PAUSE = "pausing for %(pause).1f s because of %(reason)s"


class SlotLog:
    """Log lines that begin with the name of a slot; ``details`` are the named arguments
    of the text."""

    def __init__(self, logger: logging.Logger, spider: Spider | None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})

    def log(self, level: int, slot: Slot, text: str, **details: object) -> None:
        if self._log.isEnabledFor(level):
            details["slot"] = printable(slot.key)
            self._log.log(level, f"%(slot)s: {text}", details, stacklevel=2)

    debug = partialmethod(log, logging.DEBUG)
    info = partialmethod(log, logging.INFO)
    warning = partialmethod(log, logging.WARNING)


class RateLog(SlotLog):
    def __init__(self, spider: Spider | None) -> None:
        super().__init__(logger, spider)
        self._named: set[str] = set()

    def settled(
        self, slot: Slot, tally: Tally, outcome: Outcome, change: Change
    ) -> None:
        if tally.logged_rate is None:
            tally.logged_rate = change.old_rate
        is_refused = outcome.verdict is Verdict.REFUSED
        if is_refused or slot.concurrency != tally.concurrency:
            self._log_concurrency(slot, tally)
        if not tally.logged_bad_luck and slot.bad_luck:
            tally.logged_bad_luck = True
            self.info(
                slot,
                "about %(share)s of the requests fail whatever the rate; they will be "
                "retried later",
                share=percent(slot.bad_luck),
            )
        if change.cut:
            self._log_cut(slot, tally, outcome, change)
            return
        if change.pause >= NO_WAIT:
            matters = change.pause >= _LONG_PAUSE or outcome.verdict is Verdict.BUSY
            level = logging.INFO if matters else logging.DEBUG
            reason = outcome.reason or _QUOTA
            self.log(level, slot, _PAUSE, pause=change.pause, reason=reason)
        settled_at = change.settled_at
        if settled_at and _differs(settled_at, tally.logged_settled, _MOVED):
            if (place := _place(slot, outcome)) is not None:
                tally.logged_settled = tally.logged_rate = settled_at
                text = "settled at %(rate).3g/s, %(place)s"
                self.log(self.level(slot), slot, text, rate=settled_at, place=place)
        elif change.new_rate != change.old_rate:
            self._log_rate(slot, tally, outcome, change)

    def level(self, slot: Slot) -> int:
        """The level of good news about this slot."""
        if slot.key in self._named:
            return logging.INFO
        if len(self._named) >= _MOST_SLOTS:
            return logging.DEBUG
        self._named.add(slot.key)
        if len(self._named) == _MOST_SLOTS:
            self._log.info("Speedups of further slots are only logged at DEBUG")
        return logging.INFO

    def _log_cut(
        self, slot: Slot, tally: Tally, outcome: Outcome, change: Change
    ) -> None:
        tally.was_cut = True
        is_pause = change.pause >= NO_WAIT
        if change.new_rate != change.old_rate:
            text = _RATE + ("; pausing for %(pause).1f s" if is_pause else "")
        else:
            text = _PAUSE if is_pause else "%(reason)s"
            text += "; the rate stays at %(rate).3g/s"
        level = logging.DEBUG
        if not was_bad_luck(tally, outcome, change):
            is_asked = is_pause or outcome.wait is not None
            level = logging.WARNING if is_asked else logging.INFO
            tally.logged_rate = change.new_rate
        reason, rate, pause = reason_of(outcome, change), change.new_rate, change.pause
        rates = _rates(change)
        self.log(level, slot, text, rates=rates, rate=rate, reason=reason, pause=pause)

    def _log_rate(
        self, slot: Slot, tally: Tally, outcome: Outcome, change: Change
    ) -> None:
        is_slower = change.new_rate < change.old_rate
        reason = reason_of(outcome, change)
        if tally.was_cut and not is_slower:
            tally.was_cut = False
            reason = "a success after the refusal"
        level = logging.DEBUG
        is_first_overload = change.relieved and not tally.logged_overload
        differs = _differs(change.new_rate, tally.logged_rate, _MUCH)
        if is_first_overload or (differs and not change.trial):
            level = logging.INFO if is_slower else self.level(slot)
            tally.logged_rate = change.new_rate
            tally.logged_overload = tally.logged_overload or change.relieved
        self.log(level, slot, _RATE, rates=_rates(change), reason=reason)

    def _log_concurrency(self, slot: Slot, tally: Tally) -> None:
        before, tally.concurrency = tally.concurrency, slot.concurrency
        # Fewer are sent long before it is known that this is the reason.
        logged = tally.logged_concurrency or math.inf
        is_found = slot.concurrency < logged and slot.limits_connections
        if is_found:
            tally.logged_concurrency = slot.concurrency
        if before is None:
            return  # what was recalled has been logged
        if is_found:
            most = counted(slot.concurrency, "request")
            text = "at most %(most)s at once, since it has refused more"
            self.info(slot, text, most=most)
        elif slot.concurrency < before:
            most = counted(slot.concurrency, "request")
            self.debug(slot, "at most %(most)s at once for now", most=most)


def was_bad_luck(tally: Tally, outcome: Outcome, change: Change) -> bool:
    """Tell whether a cut is one of those that the host is known for. One that speaks of
    the rate is not."""
    if not change.cut or outcome.speaks_of_rate:
        return False
    return tally.logged_bad_luck and change.pause < _LONG_PAUSE


def reason_of(outcome: Outcome, change: Change) -> str:
    if change.relieved:
        return "overload: responses get slower as the rate rises"
    if change.trial and change.new_rate < change.old_rate:
        return "slow responses, to see whether a lower rate helps"
    if change.trial:
        return "the end of a trial at a lower rate"
    if outcome.quota is not None:
        return outcome.reason or _QUOTA
    if change.new_rate > change.old_rate:
        return "sustained success"
    return outcome.reason or "what it refused earlier"


def _rates(change: Change) -> str:
    """With enough digits to tell the two apart."""
    for digits in range(3, 7):
        old, new = f"{change.old_rate:.{digits}g}", f"{change.new_rate:.{digits}g}"
        if old != new:
            break
    return f"{old}/s → {new}/s"


def _place(slot: Slot, outcome: Outcome) -> str | None:
    """Return None where the reason is not known."""
    if outcome.quota is not None:
        return "as the host's quota headers say"
    if slot.bound_by is Cause.SETTINGS:
        return "the maximum that your settings allow"
    return None if slot.ceiling is None else "just under what the host allows"


def _differs(rate: float, logged: float | None, factor: float) -> bool:
    return logged is None or not logged / factor < rate < logged * factor
