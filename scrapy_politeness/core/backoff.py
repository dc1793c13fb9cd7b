"""How long to be silent after a refusal."""

from __future__ import annotations

from scrapy_politeness.core.snapshot import whole

# Processes that were refused together must not come back together. The jitter only
# lengthens: a pause is never shorter than promised.
_JITTER = 0.1

# 2.0**1024 would overflow.
_MOST_DOUBLINGS = 64


class Backoff:
    """base * 2^n for the n-th refusal in a row, up to a maximum; or what the host asks
    for."""

    __slots__ = ("_base", "_max", "_refusals")

    def __init__(self, base: float, maximum: float) -> None:
        self._base = base
        self._max = maximum
        self._refusals = 0

    def shape(self) -> dict[str, object]:
        return {"_refusals": whole}

    def served(self) -> None:
        self._refusals = 0

    def refused(self, asked: float | None, chance: float) -> float:
        doublings = min(self._refusals, _MOST_DOUBLINGS)
        own = min(self._base * 2.0**doublings * (1 + _JITTER * chance), self._max)
        self._refusals += 1
        if asked is None:
            return own
        # A host that refuses again right after its own Retry-After rounds it down or
        # does not know better.
        return asked if self._refusals == 1 else max(asked, own)
