"""What is told in the log when a slot gets faster or slower.

A rate changes with every probe, and a crawl may have thousands of slots: what would
flood the log is for DEBUG. News are refusals, rates that differ much from what was
told last, and the places where rates settle. Of a host that is known to have bad luck,
that is told once: from then on, a refusal is news only if a long silence follows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.observe.names import printable
from scrapy_politeness.observe.tally import NO_WAIT
from scrapy_politeness.observe.text import counted, percent

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.core.lessons import Change
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.observe.tally import Tally

logger = logging.getLogger(__name__)

# A rate is news when it differs by this factor from what was told last.
_MUCH = 1.5

# A slot that has settled elsewhere by this factor has moved.
_MOVED = 1.25

# Good news is told of so many slots: the first ones show how it works.
_MOST_TOLD = 50

# A silence without a refusal, such as the end of a quota, is news from here on; and so
# is one after bad luck.
_LONG_SILENCE = 10.0


QUOTA = "its quota"
OVERLOAD = "overload: it answers more slowly the faster it is asked"
TRIAL = "late answers, to see whether they get faster at a lower rate"
TRIAL_OVER = "the end of a trial at a lower rate"
RECOVERY = "an answer after the refusal"

_CUT = "%(slot)s: rate %(rates)s because of %(reason)s; silent for %(pause).1f s"
_UNCHANGED = (
    "%(slot)s: silent for %(pause).1f s because of %(reason)s; the rate stays at "
    "%(rate).3g/s"
)
_CUT_ALONE = "%(slot)s: rate %(rates)s because of %(reason)s"
_NOTHING_DONE = "%(slot)s: %(reason)s; the rate stays at %(rate).3g/s"


class RateNews:
    def __init__(self, spider: Spider | None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._told_of: set[str] = set()

    def tell(self, slot: Scope, tally: Tally, outcome: Outcome, change: Change) -> None:
        """A request is over, and that has changed something or not."""
        if tally.told_rate is None:
            tally.told_rate = change.old_rate
        if slot.concurrency != tally.concurrency:
            self._tell_concurrency(slot, tally)
        details: dict[str, object] = {
            "slot": printable(slot.key),
            "reason": reason_of(outcome, change),
            "pause": change.pause,
        }
        if slot.bad_luck and not tally.told_bad_luck:
            self._tell_bad_luck(slot, tally)
        if change.cut:
            self._tell_cut(tally, outcome, change, details)
            return
        if change.pause >= NO_WAIT:
            is_news = change.pause >= _LONG_SILENCE or outcome.verdict is Verdict.BUSY
            level = logging.INFO if is_news else logging.DEBUG
            self._log.log(
                level,
                "%(slot)s: silent for %(pause).1f s because of %(reason)s",
                {**details, "reason": outcome.reason or QUOTA},
            )
        if change.settled_at is not None and _differs(
            change.settled_at, tally.told_place, _MOVED
        ):
            self._tell_place(slot, tally, change.settled_at, outcome)
        elif change.new_rate != change.old_rate:
            self._tell_rate(slot, tally, change, details)

    def _tell_bad_luck(self, slot: Scope, tally: Tally) -> None:
        tally.told_bad_luck = True
        self._log.info(
            "%(slot)s: about %(share)s of the requests fail whatever the rate; they "
            "are asked for again later",
            {"slot": printable(slot.key), "share": percent(slot.bad_luck)},
        )

    def _tell_cut(
        self,
        tally: Tally,
        outcome: Outcome,
        change: Change,
        details: dict[str, object],
    ) -> None:
        tally.was_cut = True
        is_silent = change.pause >= NO_WAIT
        if change.new_rate == change.old_rate:
            text = _UNCHANGED if is_silent else _NOTHING_DONE
        else:
            text = _CUT if is_silent else _CUT_ALONE
        level = logging.DEBUG
        if not was_bad_luck(tally, change):
            is_meant = is_silent or outcome.wait is not None
            level = logging.WARNING if is_meant else logging.INFO
            tally.told_rate = change.new_rate
        self._log.log(
            level, text, {**details, "rates": _Rates(change), "rate": change.new_rate}
        )

    def _tell_place(
        self, slot: Scope, tally: Tally, rate: float, outcome: Outcome
    ) -> None:
        place = _place(slot, outcome)
        if place is None:
            return
        tally.told_place = tally.told_rate = rate
        self._log.log(
            self.level(slot),
            "%(slot)s: settled at %(rate).3g/s, %(place)s",
            {
                "slot": printable(slot.key),
                "rate": rate,
                "place": place,
            },
        )

    def _tell_rate(
        self, slot: Scope, tally: Tally, change: Change, details: dict[str, object]
    ) -> None:
        if tally.was_cut and change.new_rate > change.old_rate:
            tally.was_cut = False
            details["reason"] = RECOVERY
        level = logging.DEBUG
        is_first_relief = change.relieved and not tally.told_relief
        is_news = _differs(change.new_rate, tally.told_rate, _MUCH)
        if is_first_relief or (is_news and not change.trial):
            slower = change.new_rate < change.old_rate
            level = logging.INFO if slower else self.level(slot)
            tally.told_rate = change.new_rate
            tally.told_relief = tally.told_relief or change.relieved
        self._log.log(
            level,
            "%(slot)s: rate %(rates)s because of %(reason)s",
            {**details, "rates": _Rates(change)},
        )

    def _tell_concurrency(self, slot: Scope, tally: Tally) -> None:
        before, tally.concurrency = tally.concurrency, slot.concurrency
        if before is not None and slot.concurrency < before:
            # Fewer are sent long before anybody knows that this is the reason.
            is_found = slot.learned is not None and slot.learned.concurrency is not None
            is_news = is_found and slot.concurrency != tally.told_concurrency
            if is_news:
                tally.told_concurrency = slot.concurrency
            self._log.log(
                logging.INFO if is_news else logging.DEBUG,
                "%(slot)s: at most %(most)s at once, since it has refused more",
                {
                    "slot": printable(slot.key),
                    "most": counted(slot.concurrency, "request"),
                },
            )

    def level(self, slot: Scope) -> int:
        """The level of good news of this slot."""
        if slot.key in self._told_of:
            return logging.INFO
        if len(self._told_of) >= _MOST_TOLD:
            return logging.DEBUG
        self._told_of.add(slot.key)
        if len(self._told_of) == _MOST_TOLD:
            self._log.info(
                "Of further slots, only slowdowns are told; the rest has level DEBUG"
            )
        return logging.INFO


def was_bad_luck(tally: Tally, change: Change) -> bool:
    """Tell whether a cut is one of those that the host is known for."""
    return change.cut and tally.told_bad_luck and change.pause < _LONG_SILENCE


def reason_of(outcome: Outcome, change: Change) -> str:
    if change.relieved:
        return OVERLOAD
    if change.trial:
        return TRIAL if change.new_rate < change.old_rate else TRIAL_OVER
    if outcome.quota is None and change.new_rate > change.old_rate:
        return "sustained success"
    return outcome.reason or QUOTA


class _Rates:
    """Put into words only when the line is written: with so many digits that the two
    differ, if a few are enough."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def __str__(self) -> str:
        change = self._change
        for digits in range(3, 7):
            old, new = f"{change.old_rate:.{digits}g}", f"{change.new_rate:.{digits}g}"
            if old != new:
                break
        return f"{old}/s → {new}/s"


def _place(slot: Scope, outcome: Outcome) -> str | None:
    """Return None where nothing is known that could be said."""
    if outcome.quota is not None:
        return "as the host's quota headers say"
    if slot.bound_by is Cause.SETTINGS:
        return "the most that your settings allow"
    return None if slot.ceiling is None else "just under what the host allows"


def _differs(rate: float, told: float | None, factor: float) -> bool:
    return told is None or not told / factor < rate < told * factor
