"""Hosts that are given up, and with them what waits for them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from scrapy_politeness.core.outage import Outages
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.text import counted, duration
from scrapy_politeness.exceptions import GivenUp
from scrapy_politeness.http.names import printable, public_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider

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

_WILL_GIVE_UP = (
    "After %(patience)s of that (POLITENESS_GIVE_UP_AFTER), its %(pending)s will be "
    "given up"
)
_GIVING_UP = "Giving up its %(pending)s (POLITENESS_GIVE_UP_AFTER is %(patience)s)"


class DeadHosts:
    """When a host has refused everything for POLITENESS_GIVE_UP_AFTER seconds, its
    requests are given up until its present pause ends. The first one after that is
    sent; if it is served, the host is alive again."""

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
        self._outages = Outages(
            policy.give_up_after, policy.max_slots, lambda key: seen(key) is None
        )
        self._engine = engine
        self._listener = listener
        self._pending = pending
        self._log = logging.LoggerAdapter(logger, {"spider": spider})

    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        """A request of this slot is over."""
        was_dead = slot.is_dead
        if outcome.verdict is Verdict.SERVED and not outcome.wait and not was_dead:
            self._outages.forget(slot.key)
            return
        asked_for_pause = not outcome.verdict.is_overload and change.pause > 0
        is_news = change.cut or asked_for_pause
        outage = self._outages.observe(
            slot.key, outcome, time.monotonic(), is_news=is_news
        )
        is_dead = self._outages.is_dead(slot.key)
        slot.set_dead(is_dead)
        if outage is None:
            return
        if is_dead and not was_dead:
            self._warn(slot, outage, _GIVING_UP)
        elif outage.times == _OFTEN and self._patience and self._pending(slot.key):
            self._warn(slot, outage, _WILL_GIVE_UP)

    def check(self, request: Request, slot: Slot) -> None:
        """Raise GivenUp if the host is dead, but not while the spider closes, since it
        may be alive for the next run."""
        if slot.is_given_up(time.monotonic()) and not self._engine.is_closing:
            self._listener.given_up(slot.key)
            self._log.debug(
                "%(slot)s: giving up %(request)s",
                {"slot": printable(slot.key), "request": public_request(request)},
            )
            outage = self._outages.of(slot.key)
            assert outage is not None
            raise GivenUp(
                f"{printable(slot.key)} has served nothing for "
                f"{duration(outage.seconds)}, last because of {outage.reason}"
            )

    def forget(self, slot: Slot) -> None:
        self._outages.forget(slot.key)
        slot.set_dead(False)

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
