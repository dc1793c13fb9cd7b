"""Which robots.txt applies to the sites that were visited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.core.lru import LRU
from scrapy_politeness.robots.request import other_scheme

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.robots.answer import RobotsAnswer
    from scrapy_politeness.robots.log import RobotsLog
    from scrapy_politeness.robots.schedule import Schedule
    from scrapy_politeness.robots.terms import RobotsTerms

_DISALLOW_ALL = b"User-agent: *\nDisallow: /\n"


@dataclass(slots=True)
class Known:
    """What applies to a site until ``ask_at``, when its robots.txt is requested again:
    what was read at ``read_at``, or what was decided since it is unreachable. Since
    then, ``failures`` requests have failed. Where the host cannot be reached at all,
    its pages fail with ``error``."""

    terms: RobotsTerms | None
    ask_at: float
    read_at: float | None = None
    failures: int = 0
    error: Exception | None = None


class KnownSites(LRU[str, Known]):
    """Decides what applies where a robots.txt is unreachable: ``answer`` is that to the
    ``nth`` request for it, ``slot`` the one that it went through."""

    def __init__(
        self,
        most: int,
        may_go: Callable[[str, Known], bool],
        schedule: Schedule,
        log: RobotsLog,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(most, may_go)
        self._schedule = schedule
        self._log = log
        self._clock = clock

    def stay_with(
        self, known: Known, site: str, answer: RobotsAnswer, slot: Slot | None
    ) -> None:
        """Go by what applied so far."""
        known.failures += 1
        known.ask_at = self._ask_again_at(slot, known.failures)
        if known.read_at is not None and known.failures == 1:
            age = self._clock() - known.read_at
            self._log.still_applies(site, answer.reason, age)

    def adopt(
        self, site: str, answer: RobotsAnswer, nth: int, slot: Slot | None
    ) -> bool:
        """Go by the rules of the same host's other scheme, if they were read."""
        other = other_scheme(site)
        known = self.get(other)
        if known is None or known.read_at is None:
            return False
        ask_at = self._ask_again_at(slot, nth)
        self[site] = Known(known.terms, ask_at, failures=nth)
        self._log.adopts(site, answer.reason, other)
        return True

    def go_without(
        self,
        site: str,
        answer: RobotsAnswer,
        nth: int,
        slot: Slot | None,
        *,
        obeys: bool,
    ) -> bytes:
        """Return the rules to go by."""
        self[site] = Known(None, self._ask_again_at(slot, nth), failures=nth)
        self._log.goes_without(site, answer.reason, obeys=obeys)
        return b""

    def disallow(
        self,
        site: str,
        answer: RobotsAnswer,
        nth: int,
        slot: Slot | None,
        seconds: float,
    ) -> bytes:
        """Return the rules to go by, since it has been unreachable for that long."""
        ask_at = self._ask_again_at(slot, nth)
        self[site] = Known(None, ask_at, failures=nth, error=answer.error)
        if answer.error is None:
            self._log.disallows(site, answer.reason, seconds)
        else:
            self._log.not_there(site, answer.reason)
        return _DISALLOW_ALL

    def _ask_again_at(self, slot: Slot | None, failures: int) -> float:
        """Pages come first after a pause: to be sent, or to be dropped."""
        paused_until = -math.inf
        if slot is not None and not slot.is_stopped:
            paused_until = slot.blocked_until
        gap = self._schedule.background_gap(failures)
        return max(self._clock(), paused_until) + gap
