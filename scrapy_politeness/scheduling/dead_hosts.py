"""Hosts that are given up, and with them what waits for them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy_politeness.core.challenges import Challenges
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.text import counted, duration
from scrapy_politeness.exceptions import GivenUp, NotWelcome
from scrapy_politeness.http.names import printable, public_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.http import Response

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outage import Outage
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.listener import Listener

logger = logging.getLogger(__name__)

# This many refusals in a row are no accident.
_OFTEN = 3

# How many of the longest pauses a host that has served pages may challenge us for: an
# hour by default. Firewalls seldom shut those out for longer who were too fast.
_CHALLENGED_FOR = 12

_WILL_GIVE_UP = (
    "After %(patience)s of that (POLITENESS_GIVE_UP_AFTER), its %(pending)s will be "
    "given up"
)
_GIVING_UP = "Giving up its %(pending)s (POLITENESS_GIVE_UP_AFTER is %(patience)s)"


class DeadHosts:
    """When a host has refused everything for POLITENESS_GIVE_UP_AFTER seconds, its
    requests are given up until its present pause ends. The first one after that is
    sent; if it is served, the host is alive again.

    One that does not want this crawler is stopped: its requests are given up for the
    rest of the run."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        listener: Listener,
        pending: Callable[[str], int],
        seen: Callable[[str], Slot | None],
        spider: Spider | None,
    ) -> None:
        self._patience = policy.give_up_after
        self._challenges = Challenges(
            _CHALLENGED_FOR * policy.backoff_max,
            policy.max_slots,
            lambda key: seen(key) is None,
        )
        # Why, by slot.
        self._stopped: dict[str, str] = {}
        self._engine = engine
        self._listener = listener
        self._pending = pending
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        # When the outage began that was warned about, by slot.
        self._foretold: WeakKeyDictionary[Slot, float] = WeakKeyDictionary()

    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        """A request of this slot is over."""
        if outcome.is_challenge and change.cut:
            self._challenged(slot, outcome)
        elif outcome.verdict is Verdict.SERVED and outcome.is_page:
            self._challenges.end(slot.key)
        # What a challenge means will be decided sooner.
        self.heard(slot, is_foretold=not outcome.is_challenge)

    def heard(self, slot: Slot, *, is_foretold: bool = True) -> None:
        """The slot has learned something, perhaps from another process."""
        outage = slot.outage
        if outage is None or (slot.is_dead and slot.is_stopped):
            return
        was_dead = slot.is_dead
        is_dead = outage.times > 0 and outage.is_dead(self._patience)
        if outage.times == _OFTEN and self._patience and is_foretold and not was_dead:
            self._foretell(slot, outage)
        if is_dead is not was_dead:
            slot.set_dead(is_dead)
            if is_dead:
                self._warn(slot, outage, _GIVING_UP)

    def _foretell(self, slot: Slot, outage: Outage) -> None:
        if self._foretold.get(slot) != outage.since and self._pending(slot.key):
            self._foretold[slot] = outage.since
            self._warn(slot, outage, _WILL_GIVE_UP)

    @property
    def has_stopped(self) -> bool:
        """Tell whether a host does not want this crawler."""
        return bool(self._stopped)

    def stop(self, slot: Slot, reason: str) -> None:
        """This crawler is not welcome."""
        if slot.is_stopped:
            return
        self._stopped[slot.key] = reason
        pending = self._pending(slot.key)
        self._log.warning(
            "%(slot)s: this crawler is not welcome (%(reason)s). Nothing more will be "
            "sent; its %(pending)s and all new ones go to their errbacks with "
            "NotWelcome",
            {
                "slot": printable(slot.key),
                "reason": reason,
                "pending": counted(pending, "waiting request"),
            },
        )
        self._listener.blocked(slot, reason)
        slot.stop()

    def check(
        self, request: Request, slot: Slot, response: Response | None = None
    ) -> None:
        """Raise GivenUp if the host is dead, or NotWelcome, but not while the spider
        closes, since it may be alive for the next run."""
        if not slot.is_dead:
            return
        if slot.is_given_up(time.monotonic()) and not self._engine.is_closing:
            self._listener.given_up(slot.key)
            self._log.debug(
                "%(slot)s: giving up %(request)s",
                {"slot": printable(slot.key), "request": public_request(request)},
            )
            if slot.is_stopped:
                raise NotWelcome(
                    f"{printable(slot.key)} does not want this crawler: "
                    f"{self._stopped[slot.key]}",
                    response,
                )
            outage = slot.outage
            assert outage is not None
            raise GivenUp(
                f"{printable(slot.key)} has served nothing for "
                f"{duration(outage.seconds)}; the last failure was {outage.reason}"
            )

    def forget(self, slot: Slot) -> None:
        self._challenges.end(slot.key)
        self._stopped.pop(slot.key, None)
        slot.set_dead(False)

    def _challenged(self, slot: Slot, outcome: Outcome) -> None:
        row = self._challenges.challenged(
            slot.key, time.monotonic(), has_served=slot.serving.pages > 0
        )
        if row is not None:
            since = "no page served so far"
            if slot.serving.pages:
                since = f"no page served for {duration(row.seconds)}"
            reason = f"{outcome.reason}, {row.times} times in a row, {since}"
            self.stop(slot, reason)

    def _warn(self, slot: Slot, outage: Outage, what_now: str) -> None:
        pending = self._pending(slot.key)
        self._log.warning(
            "%(slot)s: nothing served%(span)s, %(times)d failures in a row, the last "
            f"because of %(reason)s. {what_now}",
            {
                "slot": printable(slot.key),
                "times": outage.times,
                "span": (
                    f" for {duration(outage.seconds)}" if outage.seconds >= 1 else ""
                ),
                "reason": outage.reason,
                "pending": counted(pending, "waiting request"),
                "patience": duration(self._patience),
            },
        )
