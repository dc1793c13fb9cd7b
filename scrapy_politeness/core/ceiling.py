"""What is believed of a host's limit, and what a refusal changes about it."""

from __future__ import annotations

import math
from enum import Enum

from scrapy_politeness.core.goodput import Goodput, Lately
from scrapy_politeness.core.snapshot import number, optional, part, positive

# The burst that is believed until the host shows more: common limiters let 5 to 20
# through at once.
_BURST = 5.0

# What a guess allows for it: it is tried out before anything is built on it, so it may
# be bold.
_SMALL_BURST = 2.0

# So many successes make a measurement. With fewer, one request more or less changes
# the result.
_ENOUGH = 20

# Two measurements that differ by less than this agree.
_AGREEMENT = 0.05

# A ceiling that was refused is lowered to this share of it at least.
_LOWER = 0.98

# What was really served lately is not far above the limit: a ceiling well below that
# would be the fault of a short measurement.
_TRUST_IN_LATELY = 0.8

# A host with a wrong Retry-After must not bring the ceiling down to nothing.
_DEEPEST_FALL = 32

# Seconds of what was served lately, and within the last hour or so.
_LATELY = 30.0
_LONG = 3600.0

# A host that has served so many times more than a window would allow does not count
# by windows: it was out of order.
_OUTAGE = 2.0

# Between the ceiling and the roof: nothing left to find out, some, or much.
_CLOSE = 0.05
_WIDE = 0.3


class Gap(Enum):
    CLOSE = "close"
    SOME = "some"
    WIDE = "wide"


class Ceiling:
    """``value`` is the highest rate that is believed to be served for good, ``roof``
    the lowest one that was refused, ``burst`` how much a client can save up.

    ``memory`` is a ceiling that was measured well, and then undercut by refusals that
    came too quickly to be a measurement: worth a try a little later.
    """

    __slots__ = (
        "_base",
        "_last_average",
        "_lately",
        "_long",
        "_probed",
        "burst",
        "memory",
        "roof",
        "value",
    )

    def __init__(self) -> None:
        self.value = math.inf
        self.roof = math.inf
        self.burst = _BURST
        self.memory: float | None = None
        self._lately = Lately(_LATELY)
        self._long = Lately(_LONG)
        self._last_average = 0.0
        # The ceiling at the start of the last probe, and what was served since then.
        self._base = math.inf
        self._probed: Goodput | None = None

    def shape(self) -> dict[str, object]:
        return {
            "value": positive,
            "roof": positive,
            "burst": number,
            "memory": optional(positive),
            "_lately": part(self._lately),
            "_long": part(self._long),
            "_last_average": number,
            "_base": positive,
            "_probed": optional(part(Goodput(0.0, 0.0))),
        }

    @property
    def is_known(self) -> bool:
        return self.value < math.inf

    @property
    def gap(self) -> Gap:
        share = self.roof / self.value - 1
        if share < _CLOSE:
            return Gap.CLOSE
        return Gap.SOME if share < _WIDE else Gap.WIDE

    def served(self, at: float) -> None:
        self._lately.add(at)
        self._long.add(at)
        if self._probed is not None:
            self._probed.add(at)

    def lately(self, now: float) -> float:
        return self._lately.rate(now)

    def probe_begins(self, now: float) -> None:
        self._base = self.value
        self._probed = Goodput(now, 0.0)

    def survived(self, rate: float) -> bool:
        """Return whether what was refused once is served now."""
        self.value = rate
        if rate < self.roof:
            return False
        self.roof = math.inf
        return True

    def refused_above(self, refused: float) -> None:
        self.roof = min(self.roof, refused)

    def guess(
        self,
        refused: float,
        goodput: Goodput | None,
        at: float,
        *,
        least: float,
        most: float,
    ) -> None:
        """The first refusal: all that is known is the way there."""
        if goodput is not None and goodput.served >= _ENOUGH:
            most = min(most, max(goodput.proven(at, _SMALL_BURST), least))
        else:
            most = min(most, 2 * least)
        self.set(most, refused)

    def set(self, value: float, refused: float) -> None:
        self.value = value
        self.roof = refused

    def refused_below(
        self, refused: float, goodput: Goodput, at: float, least: float
    ) -> bool:
        """Refused although the ceiling was not exceeded; return whether the new one
        is measured, not guessed."""
        if self.value > self._base and self._probed is not None:
            self._take_back_probe(self._probed, at, refused)
            return True
        average = goodput.average(at)
        enough = goodput.served >= _ENOUGH
        agrees = enough and (abs(average - self._last_average) < _AGREEMENT * average)
        self._last_average = average
        # The limit lies between the average and the rate that was refused. Two
        # averages agree only where nothing was forfeited: then they are the limit.
        limit = average if agrees else max(math.sqrt(average * refused), least)
        limit = max(limit, _TRUST_IN_LATELY * self._lately.rate(at))
        limit = min(limit, self.value * _LOWER)
        if enough:
            self.burst = max(self.burst, goodput.surplus(at, limit))
            self.memory = None
        self.set(limit, refused)
        return agrees

    def blocked(
        self, cycle: Goodput, began_at: float, again: float | None, now: float
    ) -> bool:
        """The host served a cycle and then nothing for long, until now: so it counts
        by windows. Return whether that is news.

        A silence that the host had asked for ends with the window, so the cycle and
        the silence are one. Otherwise, refused ``again``, they are longer than the
        window, and up to then shorter.

        Unless it had served far more before than such a window would allow: then it
        was only out of order for a while.
        """
        limit = cycle.served / (now - cycle.began_at)
        before = self._long.total(began_at) - cycle.served
        if before > _OUTAGE * limit * _LONG:
            return False
        roof = self.roof
        if again is not None:
            most = max(limit, cycle.proven(again, burst=0.0))
            roof = min(roof, most)
            limit = math.sqrt(limit * most)
        limit = max(limit, self.value / _DEEPEST_FALL)
        if cycle.served < _ENOUGH or limit >= self.value:
            return False
        self.roof = max(roof, limit)
        if self._probed is not None:
            self.burst = max(self.burst, self._probed.surplus(began_at, limit))
        self._probed = None
        self._base = math.inf
        self.value = self.memory = limit
        return True

    def _take_back_probe(self, probed: Goodput, at: float, refused: float) -> None:
        """What the last probe survived, it survived on what had been saved up."""
        proven = probed.proven(at, max(2 * self.burst, _ENOUGH))
        lower = self.value * _LOWER
        limit = self.memory = min(max(self._base, proven), lower)
        if refused > (1 + _CLOSE) * limit:
            limit = min(math.sqrt(limit * refused), lower)
        self.burst = max(self.burst, probed.surplus(at, limit))
        self._base = math.inf
        self.set(limit, refused)
