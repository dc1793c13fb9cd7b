"""What is logged when a slot gets faster or slower.

A rate changes with every probe, and a crawl may have thousands of slots: what would
flood the log is logged at DEBUG. Worth more are refusals, rates that differ much from
the last one logged, and the places where rates settle. That a host has bad luck is
logged once: from then on, a refusal is worth a line only if a long pause follows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.pace import NO_WAIT
from scrapy_politeness.core.text import counted, percent
from scrapy_politeness.observe.slot_log import SlotLog

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.observe.tally import Tally

logger = logging.getLogger(__name__)

# A rate is worth a line when it differs by this factor from the last one logged.
_MUCH = 1.5

# A slot that has settled elsewhere by this factor has moved.
_MOVED = 1.25

# How many slots have good news logged: the first ones show how it works.
_MOST_TOLD = 50

# Seconds. A pause without a refusal, such as at the end of a quota, or after bad luck,
# is worth a line from here on.
_LONG_PAUSE = 10.0


QUOTA = "its quota"
OVERLOAD = "overload: responses get slower as the rate rises"
TRIAL = "slow responses, to see whether a lower rate helps"
TRIAL_OVER = "the end of a trial at a lower rate"
RECOVERY = "a success after the refusal"

_RATE = "rate %(rates)s because of %(reason)s"
_PAUSE = "pausing for %(pause).1f s because of %(reason)s"
_STAYS = "; the rate stays at %(rate).3g/s"


class RateNews:
    def __init__(self, spider: Spider | None) -> None:
        self._spider = spider
        self._log = SlotLog(logger, spider)
        self._told_of: set[str] = set()

    def tell(self, slot: Slot, tally: Tally, outcome: Outcome, change: Change) -> None:
        """A request is over, and that has changed something or not."""
        if tally.told_rate is None:
            tally.told_rate = change.old_rate
        if slot.concurrency != tally.concurrency:
            self._tell_concurrency(slot, tally)
        if slot.bad_luck and not tally.told_bad_luck:
            tally.told_bad_luck = True
            self._log.info(
                slot,
                "about %(share)s of the requests fail whatever the rate; they will be "
                "retried later",
                share=percent(slot.bad_luck),
            )
        if change.cut:
            self._tell_cut(slot, tally, outcome, change)
            return
        if change.pause >= NO_WAIT:
            is_news = change.pause >= _LONG_PAUSE or outcome.verdict is Verdict.BUSY
            level = logging.INFO if is_news else logging.DEBUG
            reason = outcome.reason or QUOTA
            self._log.log(level, slot, _PAUSE, pause=change.pause, reason=reason)
        if change.settled_at is not None and _differs(
            change.settled_at, tally.told_place, _MOVED
        ):
            self._tell_place(slot, tally, change.settled_at, outcome)
        elif change.new_rate != change.old_rate:
            self._tell_rate(slot, tally, outcome, change)

    def _tell_cut(
        self, slot: Slot, tally: Tally, outcome: Outcome, change: Change
    ) -> None:
        tally.was_cut = True
        is_pause = change.pause >= NO_WAIT
        if change.new_rate == change.old_rate:
            text = (_PAUSE if is_pause else "%(reason)s") + _STAYS
        else:
            text = _RATE + ("; pausing for %(pause).1f s" if is_pause else "")
        level = logging.DEBUG
        if not was_bad_luck(tally, change):
            is_meant = is_pause or outcome.wait is not None
            level = logging.WARNING if is_meant else logging.INFO
            tally.told_rate = change.new_rate
        self._log.log(
            level,
            slot,
            text,
            rates=_Rates(change),
            rate=change.new_rate,
            reason=reason_of(outcome, change),
            pause=change.pause,
        )

    def _tell_place(
        self, slot: Slot, tally: Tally, rate: float, outcome: Outcome
    ) -> None:
        if (place := _place(slot, outcome)) is not None:
            tally.told_place = tally.told_rate = rate
            text = "settled at %(rate).3g/s, %(place)s"
            self._log.log(self.level(slot), slot, text, rate=rate, place=place)

    def _tell_rate(
        self, slot: Slot, tally: Tally, outcome: Outcome, change: Change
    ) -> None:
        reason = reason_of(outcome, change)
        if tally.was_cut and change.new_rate > change.old_rate:
            tally.was_cut = False
            reason = RECOVERY
        level = logging.DEBUG
        is_first_relief = change.relieved and not tally.told_relief
        is_news = _differs(change.new_rate, tally.told_rate, _MUCH)
        if is_first_relief or (is_news and not change.trial):
            slower = change.new_rate < change.old_rate
            level = logging.INFO if slower else self.level(slot)
            tally.told_rate = change.new_rate
            tally.told_relief = tally.told_relief or change.relieved
        self._log.log(level, slot, _RATE, rates=_Rates(change), reason=reason)

    def _tell_concurrency(self, slot: Slot, tally: Tally) -> None:
        before, tally.concurrency = tally.concurrency, slot.concurrency
        if before is not None and slot.concurrency < before:
            # Fewer are sent long before it is known that this is the reason.
            is_found = slot.learned is not None and slot.learned.concurrency is not None
            is_news = is_found and slot.concurrency != tally.told_concurrency
            if is_news:
                tally.told_concurrency = slot.concurrency
            self._log.log(
                logging.INFO if is_news else logging.DEBUG,
                slot,
                "at most %(most)s at once, since it has refused more",
                most=counted(slot.concurrency, "request"),
            )

    def level(self, slot: Slot) -> int:
        """The level of good news about this slot."""
        if slot.key in self._told_of:
            return logging.INFO
        if len(self._told_of) >= _MOST_TOLD:
            return logging.DEBUG
        self._told_of.add(slot.key)
        if len(self._told_of) == _MOST_TOLD:
            logger.info(
                "Speedups of further slots are logged at level DEBUG only",
                extra={"spider": self._spider},
            )
        return logging.INFO


def was_bad_luck(tally: Tally, change: Change) -> bool:
    """Tell whether a cut is one of those that the host is known for."""
    return change.cut and tally.told_bad_luck and change.pause < _LONG_PAUSE


def reason_of(outcome: Outcome, change: Change) -> str:
    if change.relieved:
        return OVERLOAD
    if change.trial:
        return TRIAL if change.new_rate < change.old_rate else TRIAL_OVER
    if outcome.quota is None and change.new_rate > change.old_rate:
        return "sustained success"
    return outcome.reason or QUOTA


class _Rates:
    """Formatted only when the line is written, with enough digits that the two
    differ."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def __str__(self) -> str:
        change = self._change
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


def _differs(rate: float, told: float | None, factor: float) -> bool:
    return told is None or not told / factor < rate < told * factor
