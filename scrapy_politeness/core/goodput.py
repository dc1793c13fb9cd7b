"""How much a host has served, and what that proves about its limit."""

from __future__ import annotations

import math

from scrapy_politeness.core.snapshot import number, series, whole

# So many points in time are kept; when there are more, every second one goes.
_MOST_MARKS = 64


class Goodput:
    """What was served since sending began, or went on after a silence.

    ``silence`` is how long it had been silent before. Times are those of sending.
    """

    __slots__ = ("_marks", "_step", "began_at", "served", "silence")

    def __init__(self, began_at: float, silence: float) -> None:
        self.began_at = began_at
        self.silence = silence
        self.served = 0
        self._marks: list[tuple[float, int]] = []
        self._step = 1

    def shape(self) -> dict[str, object]:
        return {
            "began_at": number,
            "silence": number,
            "served": whole,
            "_marks": series(number, whole),
            "_step": whole,
        }

    def add(self, sent_at: float) -> None:
        if self.served % self._step == 0:
            self._marks.append((sent_at, self.served))
            if len(self._marks) > _MOST_MARKS:
                del self._marks[1::2]
                self._step *= 2
        self.served += 1

    def average(self, now: float) -> float:
        """Served per second, the silence before included.

        A host that had nothing left both before the silence and now has served at
        exactly its limit in between, unless the silence was so long that some of
        what it would have served was forfeited.
        """
        elapsed = now - self.began_at + self.silence
        return self.served / elapsed if elapsed > 0 else 0.0

    def proven(self, now: float, burst: float) -> float:
        """The highest limit that is proven, if no more than ``burst`` was saved up.

        In any time span a host serves at most its limit times the span, plus what it
        had saved up before; so every span up to now gives a lower bound.
        """
        return max(
            (
                (self.served - count - burst) / (now - at)
                for at, count in self._marks
                if now > at
            ),
            default=0.0,
        )

    def surplus(self, now: float, limit: float) -> float:
        """The most that was served in any span up to now beyond ``limit``."""
        return max(
            (self.served - count - limit * (now - at) for at, count in self._marks),
            default=0.0,
        )


class Lately:
    """What was served per second lately, silences included. After ``memory`` seconds
    it counts a third."""

    __slots__ = ("_at", "_began_at", "_memory", "_weight")

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._began_at = math.inf
        self._at = -math.inf
        self._weight = 0.0

    def shape(self) -> dict[str, object]:
        return {"_began_at": number, "_at": number, "_weight": number}

    def add(self, at: float) -> None:
        if self._began_at == math.inf:
            self._began_at = self._at = at
        self._weight = self.total(at) + 1
        self._at = max(at, self._at)

    def rate(self, now: float) -> float:
        if now <= self._began_at:
            return 0.0
        known = 1 - math.exp((self._began_at - now) / self._memory)
        return self.total(now) / (self._memory * known)

    def total(self, now: float) -> float:
        """How many that makes."""
        return self._weight * math.exp(min(0.0, self._at - now) / self._memory)
