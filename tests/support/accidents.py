"""What may happen to a fleet and its Redis server, and whether it has kept its word."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scrapy_politeness.core.leases import HORIZON
from scrapy_politeness.core.outcome import Outcome, Verdict
from tests.support.fleet import Fleet, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.fleet import Sent
    from tests.support.redis_server import RedisServer

# A timer rings, and a lease is used, a little late.
TOLERANCE = 0.002

# Seconds after the cause is over.
BACK_WITHIN = 5.0


def limited(text: str) -> dict[str, Any]:
    return {"POLITENESS_LIMITS": {"a": {"limit": text, "adaptive": False}}}


def gaps(sent: Sequence[Sent]) -> list[float]:
    times = sorted(one.at for one in sent)
    return [b - a for a, b in pairwise(times)]


async def started(fleet: Fleet, processes: int, seconds: float = 20.0) -> None:
    for _ in range(processes):
        fleet.add()
        await asyncio.sleep(0.3)
    await asyncio.sleep(seconds)


def away(fleet: Fleet) -> None:
    fleet.network.is_down = True


def killed(fleet: Fleet) -> None:
    fleet.network.error = "connection refused"


def restarted(fleet: Fleet) -> None:
    killed(fleet)
    fleet.network.lose_memory()


def stalled(fleet: Fleet) -> None:
    fleet.network.stall()


def flapping(fleet: Fleet) -> None:
    fleet.network.flaps_every = fleet.network.random.choice([0.3, 1.0, 3.0])


def emptied(fleet: Fleet) -> None:
    fleet.network.lose_memory()


def evicted(fleet: Fleet) -> None:
    fleet.network.accept_writes()
    keys: Any = fleet.network.client.keys("*")
    for key in fleet.network.random.sample(sorted(keys), min(1, len(keys))):
        fleet.network.client.delete(key)


def replica(fleet: Fleet) -> None:
    fleet.network.rejects = True
    fleet.network.server.say("REPLICAOF", "127.0.0.1", 1)


def full(fleet: Fleet) -> None:
    fleet.network.rejects = True
    fleet.network.client.config_set("maxmemory", 1)


def forbidden(fleet: Fleet) -> None:
    fleet.network.rejects = True
    fleet.network.server.say("ACL", "SETUSER", "default", "-@write")


def partly_cut_off(fleet: Fleet) -> None:
    names = sorted(fleet.members)
    some = fleet.network.random.randint(1, max(1, len(names) - 1))
    fleet.network.cut_off |= set(fleet.network.random.sample(names, some))


def clock_set_back(fleet: Fleet) -> None:
    fleet.network.clock_set_by -= fleet.network.random.choice([2.0, 60.0, 3600.0])


def clock_set_forward(fleet: Fleet) -> None:
    fleet.network.clock_set_by += fleet.network.random.choice([2.0, 60.0, 3600.0])


def distant(fleet: Fleet) -> None:
    fleet.network.delay = fleet.network.random.choice([0.05, 0.1, 0.2])


def too_far(fleet: Fleet) -> None:
    fleet.network.delay = 0.4


def process_killed(fleet: Fleet) -> None:
    if len(fleet.members) > 1:
        name = fleet.network.random.choice(sorted(fleet.members))
        fleet.members.pop(name).die()


ACCIDENTS = [
    *(away, killed, restarted, stalled, flapping, emptied, evicted),
    *(replica, full, forbidden, partly_cut_off, process_killed),
    *(clock_set_back, clock_set_forward, distant, too_far),
]


def well(fleet: Fleet, delay: float = 0.0005) -> None:
    network = fleet.network
    network.is_down = False
    network.go_on()
    network.error, network.flaps_every, network.delay = "", 0.0, delay
    network.cut_off.clear()
    if network.rejects:
        network.accept_writes()


@dataclass
class Record:
    """Of one accident. ``gap`` is the shortest, in shares of what it should be;
    ``excess`` how many requests were above the limit, ``lease`` how many of them are
    allowed; ``broken`` how many were sent in a silence."""

    gap: float = 2.0
    excess: float = 0.0
    lease: float = 1.0
    broken: int = 0
    overslept: float = 0.0
    lost: int = 0
    log_lines: int = 0
    back_after: float = 0.0
    speed: float = 1.0
    served: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)

    def check(self) -> None:
        assert self.gap >= 1.0
        assert self.excess <= self.lease
        assert not self.broken
        assert self.overslept <= 20.0
        assert not self.lost
        assert self.log_lines <= 10
        assert self.back_after <= BACK_WITHIN
        assert self.served == self.members, "a process starves"


def excess(sent: Sequence[Sent], rate: float) -> float:
    """Return by how many requests a steady rate was exceeded, from any one of them to
    any other."""
    most = least = 0.0
    for n, at in enumerate(sorted(one.at for one in sent)):
        debt = n - rate * at
        least = debt if n == 0 else min(least, debt)
        most = max(most, debt - least)
    return most


@contextmanager
def log_lines() -> Iterator[Callable[[], int]]:
    """Count how many one process has logged in one minute, at most."""
    times: dict[str, list[float]] = defaultdict(list)

    class Counting(logging.Handler):
        def emit(self, record: Any) -> None:
            times[record.spider.name].append(time.monotonic())

    def most() -> int:
        return max(
            (
                sum(at <= other < at + 60.0 for other in own)
                for own in times.values()
                for at in own
            ),
            default=0,
        )

    log = logging.getLogger("scrapy_politeness.sharing")
    handler, level = Counting(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield most
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = True


class Trial:
    """One fleet, one accident, at a random moment and for a random time."""

    def __init__(self, server: RedisServer, seed: int, limit: str) -> None:
        random.seed(seed)
        self.chance = random.Random(seed)
        self.record = Record()
        self.delay = self.chance.choice([0.0005, 0.01, 0.05])
        network = Network(server, self.delay, jitter=self.delay / 5)
        network.random = random.Random(seed + 1)
        self.fleet = Fleet(network, limited(limit))

    async def start(self, processes: Sequence[int]) -> None:
        await started(self.fleet, self.chance.choice(processes), 15.0)
        await asyncio.sleep(self.chance.uniform(0, 15))

    async def endure(self, accident: Any, lasts: Sequence[float]) -> float:
        """Return when all was well again."""
        accident(self.fleet)
        await asyncio.sleep(self.chance.choice(lasts))
        well(self.fleet, self.delay)
        well_at = time.monotonic()
        while not all(one.is_connected for one in self.fleet.members.values()):
            assert time.monotonic() < well_at + 60.0, "never back"
            await asyncio.sleep(0.05)
        self.record.back_after = time.monotonic() - well_at
        await asyncio.sleep(BACK_WITHIN - self.record.back_after)
        return well_at

    async def end(self) -> None:
        """Nothing is sent any more, and everything that was sent has been heard of."""
        members = self.fleet.members.values()
        for member in members:
            member.pending = dict.fromkeys(member.pending, 0)
        await asyncio.sleep(0.2)
        await self.fleet.stop()
        self.record.lost = sum(abs(one.sent - one.heard) for one in members)

    def note_served(self, since: float, possible: float) -> None:
        record = self.record
        later = [one for one in self.fleet.sent if one.at > since]
        record.served = {one.process for one in later}
        record.members = set(self.fleet.members)
        record.served &= record.members
        record.speed = len(later) / possible


async def of_gaps(server: RedisServer, accident: Any, seed: int) -> Record:
    """Requests that must be some seconds apart."""
    seconds = random.Random(seed).choice([2, 4, 6])
    trial = Trial(server, seed, f"1/{seconds}s")
    with log_lines() as logged:
        await trial.start([2, 3, 5])
        await trial.endure(accident, [0.2, 1.0, 5.0, 30.0, 100.0])
        back_at = time.monotonic()
        await asyncio.sleep(25.0 * seconds)
        trial.note_served(back_at, 25.0)
        await trial.end()
        trial.record.log_lines = logged()
    trial.record.gap = (min(gaps(trial.fleet.sent)) + TOLERANCE) / seconds
    return trial.record


async def of_sums(server: RedisServer, accident: Any, seed: int) -> Record:
    """Many requests per second."""
    rate = random.Random(seed).choice([10, 20])
    trial = Trial(server, seed, f"{rate}/s")
    with log_lines() as logged:
        await trial.start([2, 4, 6])
        began_at = time.monotonic()
        await trial.endure(accident, [0.2, 1.0, 5.0, 20.0])
        back_at = time.monotonic()
        await asyncio.sleep(10.0)
        trial.note_served(back_at, 10.0 * rate)
        await trial.end()
        trial.record.log_lines = logged()
    sent = [one for one in trial.fleet.sent if one.at > began_at - 5.0]
    round_trip = 2 * max(trial.delay, 0.2 if accident is distant else 0.0)
    trial.record.lease = 1 + rate * (HORIZON + 2 * round_trip)
    trial.record.excess = excess(sent, rate)
    return trial.record


async def of_silences(server: RedisServer, accident: Any, seed: int) -> Record:
    """The host asks one process for a pause, shortly before the accident or in it."""
    trial = Trial(server, seed, "2/s")
    fleet, chance = trial.fleet, trial.chance
    wait = chance.choice([70.0, 120.0, 900.0])
    refusal = Outcome(Verdict.REFUSED, "429", wait=wait)
    is_before = chance.random() < 0.5
    with log_lines() as logged:
        await trial.start([2, 3, 5])
        if is_before:
            fleet.answers.append(refusal)
            await asyncio.sleep(chance.uniform(1.0, 3.0))
        else:
            asyncio.get_running_loop().call_later(
                chance.uniform(0.0, 4.0), fleet.answers.append, refusal
            )
        well_at = await trial.endure(accident, [0.2, 1.0, 5.0, 20.0])
        await asyncio.sleep(30.0)
        fleet.add()  # a process that does not know of it
        await asyncio.sleep(wait + 60.0)
        trial.note_served(time.monotonic() - 30.0, 60.0)
        await trial.end()
        trial.record.log_lines = logged()
    [(refused, _)] = fleet.refused
    # From when on the others know of it.
    heard_at = refused.at + 0.05 + HORIZON + 4 * trial.delay + 0.1
    if not is_before:
        heard_at = max(heard_at, well_at + BACK_WITHIN)
    until = refused.at + 0.05 + wait - TOLERANCE
    trial.record.broken = sum(
        refused.at + 0.05 < one.at < until
        and (one.at > heard_at or one.process == refused.process)
        for one in fleet.sent
    )
    trial.record.overslept = min(one.at for one in fleet.sent if one.at > until) - until
    return trial.record


TRIALS = (of_gaps, of_sums, of_silences)
