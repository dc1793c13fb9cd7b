"""When there is no hope for a host, nothing goes on waiting for it."""

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

# So often in a row is no accident any more.
_OFTEN = 3


class DeadHosts:
    """Of a host that has refused everything for POLITENESS_GIVE_UP_AFTER seconds, all
    requests are given up that come before its present silence ends. The first one
    after that is sent; when it is served, all is well again."""

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
        was_hopeless = not slot.has_hope
        asked_for_silence = not outcome.verdict.is_overload and change.pause > 0
        outage = self._outages.observe(
            slot.key,
            outcome,
            time.monotonic(),
            is_news=change.cut or asked_for_silence,
        )
        if outcome.verdict is Verdict.SERVED and not outcome.wait and slot.has_hope:
            return
        is_hopeless = self._outages.is_beyond_hope(slot.key)
        slot.set_hope(not is_hopeless)
        if outage is None:
            return
        if not was_hopeless and is_hopeless:
            self._tell_end(slot, outage)
        elif outage.times == _OFTEN and self._patience and self._pending(slot.key):
            self._tell(slot, outage)

    def check(self, request: Request, slot: Slot) -> None:
        """Raise GivenUp where there is no hope; not when the spider closes, because
        the next run may have more luck."""
        if slot.is_beyond_hope(time.monotonic()) and not self._engine.is_closing:
            raise self._give_up(request, slot)

    def _give_up(self, request: Request, slot: Slot) -> GivenUp:
        self._listener.given_up(slot.key)
        self._log.debug(
            "%(slot)s: %(request)s is given up",
            {"slot": printable(slot.key), "request": public_request(request)},
        )
        outage = self._outages.of(slot.key)
        assert outage is not None
        return GivenUp(
            f"{printable(slot.key)} has served nothing for {duration(outage.seconds)}, "
            f"last because of {outage.reason}"
        )

    def forget(self, slot: Slot) -> None:
        self._outages.forget(slot.key)
        slot.set_hope(True)

    def _tell(self, slot: Slot, outage: Outage) -> None:
        self._log.warning(
            "%(slot)s: nothing served%(span)s, %(times)d times in a row, last because "
            "of %(reason)s. What waits%(pending)s is given up when that has gone on "
            "for %(patience)s (POLITENESS_GIVE_UP_AFTER)",
            self._details(slot, outage),
        )

    def _tell_end(self, slot: Slot, outage: Outage) -> None:
        self._log.warning(
            "%(slot)s: nothing served%(span)s, %(times)d times in a row, last because "
            "of %(reason)s. What waits%(pending)s is given up "
            "(POLITENESS_GIVE_UP_AFTER is %(patience)s)",
            self._details(slot, outage),
        )

    def _details(self, slot: Slot, outage: Outage) -> dict[str, object]:
        pending = self._pending(slot.key)
        return {
            "slot": printable(slot.key),
            "times": outage.times,
            "span": f" for {duration(outage.seconds)}" if outage.seconds >= 1 else "",
            "reason": outage.reason,
            "pending": f" ({counted(pending, 'request')})" if pending else "",
            "patience": duration(self._patience),
        }
