"""Lines of the log that begin with the name of a slot."""

from __future__ import annotations

import logging
from functools import partialmethod
from typing import TYPE_CHECKING

from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.core.slot import Slot


class SlotLog:
    """``details`` are the named arguments of the text."""

    def __init__(self, logger: logging.Logger, spider: Spider | None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})

    def log(self, level: int, slot: Slot, text: str, **details: object) -> None:
        if self._log.isEnabledFor(level):
            details["slot"] = printable(slot.key)
            self._log.log(level, f"%(slot)s: {text}", details, stacklevel=2)

    debug = partialmethod(log, logging.DEBUG)
    info = partialmethod(log, logging.INFO)
    warning = partialmethod(log, logging.WARNING)

    @property
    def shows_debug(self) -> bool:
        return self._log.isEnabledFor(logging.DEBUG)
