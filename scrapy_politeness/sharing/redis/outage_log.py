"""What the log says about a Redis server that goes and comes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.text import counted
from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    import logging

# Seconds. After each outage, no other is logged for twice as long as after the last
# one; until there was none for a time.
_SILENCE = 15.0
_LONGEST_SILENCE = 600.0
_STABLE = 300.0


class OutageLog:
    """A server that goes and comes all the time must not fill the log."""

    def __init__(self, log: logging.LoggerAdapter[Any], where: str) -> None:
        self._log = log
        self._where = where
        self._silence = _SILENCE
        self._silent_until = -math.inf
        self._lost_at = -math.inf
        self._unlogged = 0
        self._is_logged = False

    def connected(self) -> None:
        self._log.info(
            "Sharing rate limits through Redis at %(where)s", {"where": self._where}
        )

    def lost(self, error: Exception, now: float, *, was_connected: bool) -> None:
        is_stable = now - self._lost_at > _STABLE
        self._lost_at = now
        if is_stable:
            self._silence = _SILENCE
        self._is_logged = is_stable or now >= self._silent_until
        if not self._is_logged:
            self._unlogged += 1
            return
        pace = (
            "with an equal share of each limit"
            if was_connected
            else "no faster than the start rate"
        )
        self._log.warning(
            "Redis at %(where)s is unavailable (%(error)s): the crawl continues alone, "
            "%(pace)s, and keeps trying to reconnect%(more)s",
            {
                "where": self._where,
                "error": printable(str(error)),
                "pace": pace,
                "more": self._more(),
            },
        )
        self._silent_until = now + self._silence
        self._silence = min(2 * self._silence, _LONGEST_SILENCE)

    def back(self) -> None:
        if self._is_logged:
            self._log.info(
                "Redis at %(where)s is back: sharing rate limits again",
                {"where": self._where},
            )

    def _more(self) -> str:
        unlogged, self._unlogged = self._unlogged, 0
        if not unlogged:
            return ""
        return f". {counted(unlogged, 'more outage')} since the last warning"
