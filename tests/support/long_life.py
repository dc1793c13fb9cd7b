"""The long life of a fleet: one accident after the other, at random moments."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.leases import HORIZON
from scrapy_politeness.core.outcome import Outcome, Verdict
from tests.support.accidents import (
    ACCIDENTS,
    BACK_WITHIN,
    TOLERANCE,
    emptied,
    evicted,
    gaps,
    limited,
    log_lines,
    partly_cut_off,
    process_killed,
    well,
)
from tests.support.fleet import Fleet, Network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fleet import Sent
    from tests.support.redis_server import RedisServer

# Seconds: between two requests, and from one accident to the next, on average.
GAP = 2.0
CALM = 600.0

# Seconds. A process that has had no request for so long, without a pause, starves.
_STARVES_AFTER = 1200.0

# Seconds, of one direction. Each process has a way of its own to the server.
_DELAYS = (0.0005, 0.005, 0.02, 0.1)
_LANDS_AFTER = 0.05
_LONGEST_LINE = 120.0
_DAY = 86400.0


@dataclass
class Silence:
    """``heard_at`` is when all know of it."""

    process: str
    began_at: float
    heard_at: float
    ends_at: float

    def forbids(self, sent: Sent) -> bool:
        since = self.began_at if sent.process == self.process else self.heard_at
        return since < sent.at < self.ends_at - TOLERANCE


@dataclass
class Life:
    """``longest_wait`` is how long a process was without a request, pauses apart."""

    seconds: float = 0.0
    pages: int = 0
    calls: int = 0
    silences: int = 0
    log_lines: int = 0
    shortest_gap: float = GAP * 2
    longest_wait: float = 0.0
    accidents: Counter[str] = field(default_factory=Counter)


class LongLife:
    """Checks after every event that no gap was too short and no silence broken, that
    all are back in time, and that nobody starves. Processes that were killed are
    replaced when all is well again."""

    def __init__(self, server: RedisServer, processes: int, seed: int) -> None:
        random.seed(seed)
        self.chance = random.Random(seed)
        network = Network(server, min(_DELAYS), jitter=max(_DELAYS) / 10)
        network.random = random.Random(seed + 1)
        self.fleet = Fleet(network, limited(f"1/{GAP:.0f}s"))
        self.fleet.look_every = 60.0
        self.processes = processes
        self.life = Life()
        self.silences: list[Silence] = []
        self.last_of: dict[str, float] = {}
        self._last: list[Sent] = []

    async def live(
        self, seconds: float, report: Callable[[Life], None] = lambda _: None
    ) -> Life:
        """``report`` is called once a day."""
        fleet = self.fleet
        began_at = time.monotonic()
        try:
            with log_lines() as logged:
                while time.monotonic() < began_at + seconds:
                    while len(fleet.members) < self.processes:
                        member = fleet.add()
                        delay = self.chance.choice(_DELAYS)
                        fleet.network.delays[member.name] = delay
                        self.last_of[member.name] = time.monotonic()
                        await asyncio.sleep(0.3)
                    await self._calm()
                    await self._accident()
                    days = self.life.seconds // _DAY
                    self.life.seconds = time.monotonic() - began_at
                    if self.life.seconds // _DAY > days:
                        report(self.life)
                self.life.log_lines = logged()
            await fleet.stop()
        finally:
            for member in fleet.members.values():
                member.die()
        self.life.seconds = time.monotonic() - began_at
        self.life.calls = fleet.network.calls.total()
        return self.life

    async def _calm(self) -> None:
        await asyncio.sleep(self.chance.expovariate(1 / CALM))
        if self.chance.random() < 0.3:
            self._refuse()
            await asyncio.sleep(10 * GAP)
            if self.chance.random() < 0.5:  # those in line have not heard of it yet
                self.chance.choice([emptied, evicted])(self.fleet)
        await self._until_all_have_heard()
        self._check(well_at=-1.0)

    async def _until_all_have_heard(self) -> None:
        """Of every pause, before Redis is away."""
        # A line may be twice as long as all who wait make it, for a while.
        line = 1.1 * min(2 * self.processes * GAP, _LONGEST_LINE)
        while self.fleet.answers or self._last_refused_at + line > time.monotonic():
            await asyncio.sleep(GAP)

    @property
    def _last_refused_at(self) -> float:
        times = [silence.began_at for silence in self.silences]
        return max([sent.at for sent, _ in self.fleet.refused] + times, default=0.0)

    async def _accident(self) -> None:
        accident = self.chance.choice(ACCIDENTS)
        self.life.accidents[accident.__name__] += 1
        if self.chance.random() < 0.3:
            self._refuse()
        accident(self.fleet)
        lasts = self.chance.choice([0.2, 1.0, 5.0, 30.0, 100.0, 400.0])
        if accident is partly_cut_off:  # the others leave their turns free for a time
            lasts = min(lasts, 100.0)
        await asyncio.sleep(lasts)
        well(self.fleet, min(_DELAYS))
        well_at = time.monotonic()
        await asyncio.sleep(BACK_WITHIN)
        members = self.fleet.members.values()
        assert all(one.is_connected for one in members), accident.__name__
        if accident is process_killed:
            self.last_of = {name: self.last_of[name] for name in self.fleet.members}
        self._check(well_at)

    def _refuse(self) -> None:
        wait = self.chance.choice([10.0, 60.0, 300.0, 900.0])
        self.fleet.answers.append(Outcome(Verdict.REFUSED, "429", wait=wait))

    def _check(self, well_at: float) -> None:
        fleet, life, now = self.fleet, self.life, time.monotonic()
        for sent, outcome in fleet.refused:
            at = sent.at + _LANDS_AFTER
            heard_at = max(at + HORIZON + 4 * max(_DELAYS) + 0.1, well_at + BACK_WITHIN)
            silence = Silence(sent.process, at, heard_at, at + (outcome.wait or 0.0))
            self.silences.append(silence)
        life.silences += len(fleet.refused)
        fleet.refused.clear()
        together = self._last + fleet.sent
        life.shortest_gap = min([life.shortest_gap, *gaps(together)])
        assert life.shortest_gap >= GAP - TOLERANCE, (life, now)
        for silence in self.silences:
            broken = [one for one in fleet.sent if silence.forbids(one)]
            assert not broken, (silence, broken, life)
        paused_until = max((one.ends_at for one in self.silences), default=0.0)
        for sent in fleet.sent:
            since = max(self.last_of.get(sent.process, sent.at), paused_until)
            life.longest_wait = max(life.longest_wait, sent.at - since)
            self.last_of[sent.process] = sent.at
        life.pages += len(fleet.sent)
        self._last = together[-1:]
        fleet.sent.clear()
        if any(silence.ends_at > now - _STARVES_AFTER for silence in self.silences):
            return
        self.silences.clear()
        for name in fleet.members:
            assert now - self.last_of[name] < _STARVES_AFTER, (name, life)
