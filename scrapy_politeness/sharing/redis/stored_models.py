"""What Redis has about hosts: hostile until parsed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.snapshot import number, thaw
from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    import logging

    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.redis.server_clock import ServerClock


class StoredModels:
    """Lets slots go on with what others have stored. What cannot be read is dropped,
    and logged once."""

    def __init__(self, clock: ServerClock, log: logging.LoggerAdapter[Any]) -> None:
        self._clock = clock
        self._log = log
        self._has_warned = False

    def adopt(self, slot: Slot, text: bytes) -> bool:
        """Return whether it could be read; the slot starts over otherwise."""
        try:
            slot.adopt(thaw(slot.learner.new_model(), _values(text)))
        except ValueError as error:  # not JSON, not UTF-8, not a model
            self.warn_damaged(slot, error)
            slot.adopt(slot.learner.new_model())
            return False
        return True

    def recall(self, slot: Slot, text: bytes) -> None:
        """Begin with a summary of what was learned some time ago."""
        try:
            values = _values(text)
            if not isinstance(values, dict):
                raise ValueError(f"not an entry: {values!r:.80}")
            age = self._clock.now - number(values.get("at"))
            learned = Learned.from_dict(values).aged(
                age, slot.learner.bounds.start_rate
            )
        except ValueError as error:
            self.warn_damaged(slot, error)
        else:
            slot.recall(learned, self._clock.now)

    def warn_damaged(self, slot: Slot, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._log.warning(
                "Dropped what Redis has about %(slot)s, because it cannot be read: "
                "%(error)s. Further drops are not logged",
                {"slot": printable(slot.key), "error": printable(str(error))},
            )


def text_of(values: object) -> str:
    return json.dumps(values, separators=(",", ":"))


def _values(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
