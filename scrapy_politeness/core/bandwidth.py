"""How many bytes per second may arrive, kept by when the next request goes.

Theory of operation. What has arrived is a debt, which is paid off at the limit. Nobody
knows how large an answer will be before it is there, so a request goes when the debt is
paid, and the answers under way will not make more of it than half a second's worth:
they are expected to be as large as the largest of their kind of late, and while there
were few of a kind, to be large. Where each connection is slow,
what arrives meanwhile is paid off meanwhile, and several may be under way at once.

In ten seconds there arrives what is paid off in that time, the half second, and at most
the one file that was let through last. For those three not to be more than the limit
and one file, a twentieth of the limit is not used.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds.
_AVERAGED_OVER = 10.0
_AHEAD = 0.5
_USED = 1 - _AHEAD / _AVERAGED_OVER

# Of how many answers the largest, and the fastest, is remembered.
_REMEMBERED = 20

# Hosts may invent kinds without end.
_MOST_KINDS = 50


@dataclass(eq=False, repr=False, slots=True)
class Bandwidth:
    """``rate`` is in bytes per second."""

    rate: float
    # Bytes that have arrived and are not paid off, as of that time.
    _debt: float = field(default=0.0, init=False)
    _at: float = field(default=-math.inf, init=False)
    _under_way: int = field(default=0, init=False)
    # Bytes that are expected of those under way.
    _missing: float = field(default=0.0, init=False)
    _sizes: dict[str, deque[int]] = field(default_factory=dict, init=False)
    _speeds: deque[float] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED), init=False
    )

    def __repr__(self) -> str:
        return f"<Bandwidth {self.rate:.3g} B/s, {self._under_way} under way>"

    @property
    def ready_at(self) -> float:
        """From when on one more request may be sent, if no more arrives meanwhile than
        is expected."""
        excess = self._debt + self._missing * self._share_unpaid - self.rate * _AHEAD
        if excess <= 0:
            return -math.inf
        return self._at + excess / (self.rate * _USED)

    @property
    def _share_unpaid(self) -> float:
        """How much of what is expected would arrive faster than it is paid off, with
        one more under way."""
        fastest = max(self._speeds, default=math.inf)
        return max(0.0, 1 - self.rate / ((self._under_way + 1) * fastest))

    def expected(self, kind: str) -> float:
        """Return how large the next answer of a kind may be."""
        sizes = self._sizes.get(kind, ())
        if_unknown = 2 * self.rate * _AHEAD * (1 - len(sizes) / _REMEMBERED)
        return max(if_unknown, *sizes, 0.0)

    def begin(self, size: float, now: float) -> None:
        """A request was sent whose answer may be that large."""
        self._pay(now)
        self._under_way += 1
        self._missing += size

    def receive(self, size: int, expected: float, now: float) -> None:
        """That much has arrived, of which ``expected`` was expected."""
        self._pay(now)
        self._debt += size
        self._missing = max(0.0, self._missing - expected)

    def end(self, missing: float, now: float) -> None:
        """An answer is complete, or will never be."""
        self._pay(now)
        self._under_way -= 1
        self._missing = max(0.0, self._missing - missing) if self._under_way else 0.0

    def remember(self, kind: str, size: int, seconds: float) -> None:
        """An answer was that large, and took that long from its first byte on."""
        if kind not in self._sizes:
            if len(self._sizes) >= _MOST_KINDS:
                self._sizes.pop(next(iter(self._sizes)))
            self._sizes[kind] = deque(maxlen=_REMEMBERED)
        self._sizes[kind].append(size)
        # What is there in a moment says nothing about what the connection can do.
        self._speeds.append(size / seconds if seconds > _AHEAD else math.inf)

    def _pay(self, now: float) -> None:
        if now > self._at:
            paid = (now - self._at) * self.rate * _USED
            self._debt = max(0.0, self._debt - paid)
            self._at = now


def bandwidth(rate: float | None) -> Bandwidth | None:
    return None if rate is None else Bandwidth(rate)


class Transfer:
    """One answer under way, for all that count its bytes. Those of one ``kind`` are
    expected to be of similar size."""

    __slots__ = ("_bandwidths", "_began_at", "_kind", "_missing", "size")

    def __init__(
        self, bandwidths: Sequence[Bandwidth], now: float, kind: str = ""
    ) -> None:
        self._bandwidths = bandwidths
        self._kind = kind
        self._missing = [bandwidth.expected(kind) for bandwidth in bandwidths]
        self._began_at: float | None = None
        self.size = 0
        for bandwidth, missing in zip(bandwidths, self._missing, strict=True):
            bandwidth.begin(missing, now)

    def receive(self, size: int, now: float) -> None:
        if self._began_at is None:
            self._began_at = now
        self.size += size
        for nth, bandwidth in enumerate(self._bandwidths):
            expected = min(float(size), self._missing[nth])
            self._missing[nth] -= expected
            bandwidth.receive(size, expected, now)

    def end(self, now: float) -> None:
        seconds = 0.0 if self._began_at is None else now - self._began_at
        for bandwidth, missing in zip(self._bandwidths, self._missing, strict=True):
            bandwidth.end(missing, now)
            if self.size:
                bandwidth.remember(self._kind, self.size, seconds)
