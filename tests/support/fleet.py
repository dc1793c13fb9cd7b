"""Many simulated processes on virtual time: the adapter as it is, and the scripts as
they are on a real Redis server; only the network and the clocks are ours."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError, RedisError
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.route import Route
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.sharing.redis import connection
from scrapy_politeness.sharing.redis.adapter import RedisSharing
from scrapy_politeness.sharing.redis.connection import UnavailableError
from tests.support.virtual_time import EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.sharing.redis.connection import Call
    from tests.support.redis_server import RedisServer

SERVED = Outcome(Verdict.SERVED)

# Scripts take the time from their last arguments, in place of the server's own.
_CLOCK = "redis.call('TIME')"
_GIVEN = "{ARGV[#ARGV - 1], ARGV[#ARGV]}"


@dataclass
class Network:
    """What lies between the processes and the server. ``delay`` is of one direction,
    and ``jitter`` up to how much is added to it; some processes have longer ``delays``
    of their own. Whoever is ``cut_off`` gets no answers; ``error`` is what everybody
    gets at once. A server that is stalled runs later what it has received. One that
    ``rejects`` answers with errors of its own. With ``flaps_every``, it comes and goes
    so often, in seconds."""

    server: RedisServer
    delay: float = 0.0005
    jitter: float = 0.0
    is_down: bool = False
    rejects: bool = False
    error: str = ""
    flaps_every: float = 0.0
    clock_set_by: float = 0.0
    delays: dict[str, float] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        self.client = self.server.client()
        self.accept_writes()
        self.client.flushall()
        self._hashes: dict[str, str] = {}
        self._is_answering = asyncio.Event()
        self._is_answering.set()

    def stall(self) -> None:
        self._is_answering.clear()

    def go_on(self) -> None:
        self._is_answering.set()

    def lose_memory(self) -> None:
        self.accept_writes()
        self.client.flushall()

    def accept_writes(self) -> None:
        """After the server was made to reject them."""
        self.rejects = False
        self.server.say("ACL", "SETUSER", "default", "+@all")
        self.server.say("REPLICAOF", "NO", "ONE")
        self.client.config_set("maxmemory", 0)

    def reaches(self, process: str) -> bool:
        return not self.is_down and process not in self.cut_off

    async def travel(self, process: str) -> None:
        delay = max(self.delay, self.delays.get(process, 0.0))
        await asyncio.sleep(delay + self.jitter * self.random.random())

    async def run_in_time(self, calls: Sequence[Call]) -> list[Any]:
        """What comes too late is run all the same."""
        if self._is_answering.is_set():
            return self.run(calls)
        work = asyncio.ensure_future(self._run_later(calls))
        done, _ = await asyncio.wait({work}, timeout=connection.PATIENCE)
        if not done:
            raise UnavailableError("no answer")
        return work.result()

    async def _run_later(self, calls: Sequence[Call]) -> list[Any]:
        await self._is_answering.wait()
        return [] if self.is_broken else self.run(calls)

    @property
    def is_broken(self) -> bool:
        phase = time.monotonic() // self.flaps_every if self.flaps_every else 0
        return bool(self.error) or phase % 2 == 1

    def run(self, calls: Sequence[Call]) -> list[Any]:
        if self.is_broken:
            raise UnavailableError(self.error or "connection refused")
        now = round((EPOCH + time.monotonic() + self.clock_set_by) * 1e6)
        clock = divmod(now, 1_000_000)
        for call in calls:
            self.calls[call.script] += 1
        with self.client.pipeline(transaction=False) as pipeline:
            for script, keys, arguments in calls:
                digest = self._hashes.get(script) or self._load(script)
                pipeline.evalsha(digest, len(keys), *keys, *arguments, *clock)
            answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, NoScriptError):
                self._hashes.clear()
                return self.run(calls)
            if isinstance(answer, RedisError):
                assert self.rejects, str(answer)
                raise UnavailableError(str(answer))
        return answers

    def _load(self, script: str) -> str:
        text = connection.source(script).replace(_CLOCK, _GIVEN)
        self._hashes[script] = str(self.client.script_load(text))
        return self._hashes[script]


class Line:
    """In place of a ``Connection``."""

    where = "virtual:6379"
    round_trip = 0.0

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._name = name

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        network = self._network
        await network.travel(self._name)
        if network.reaches(self._name):
            answers = await network.run_in_time(calls)
            await network.travel(self._name)
            if network.reaches(self._name):
                return answers
        await asyncio.sleep(connection.PATIENCE)
        raise UnavailableError("no answer")

    async def check(self) -> float:
        sent_at = time.monotonic()
        await self.run([connection.Call("check", ["check"], [])])
        return time.monotonic() - sent_at

    async def open(self, connections: int) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Sent:
    at: float
    process: str
    slot: str


class Stats:
    def inc_value(self, key: str, count: int = 1) -> None:
        pass


class FleetMember:
    """One process with as many requests as there are ``pages`` for each slot."""

    def __init__(self, fleet: Fleet, name: str, pages: int) -> None:
        self.name = name
        self._fleet = fleet
        self._news = asyncio.Event()
        stats: Any = Stats()
        spider: Any = SimpleNamespace(name=name)
        self.sharing = RedisSharing(
            "redis://virtual", fleet.policy, stats, self._pending_for, spider
        )
        line: Any = Line(fleet.network, name)
        self.sharing._connection = line
        self.sharing.hear(self)
        self.pauses: list[float] = []
        self.sent = self.heard = 0
        self.overall: Budget | None = None
        if fleet.policy.global_limit is not None:
            self.overall = Budget("the whole crawl", fleet.policy.global_limit)
            self.sharing.join(self.overall, "all")
        self.slots = [self._new_slot(key) for key in fleet.hosts]
        self.pending = dict.fromkeys(self.slots, pages)

    def _new_slot(self, key: str) -> Slot:
        own = self._fleet.policy.for_slot(key)
        assert own is not None
        slot = Slot(
            key,
            own.bounds,
            spacing=own.spacing,
            concurrency=own.concurrency,
            floor=own.floor,
            burst=own.burst,
            listeners=[lambda _: self._news.set()],
        )
        self.sharing.join(slot, f"slot:{key}")
        return slot

    def _pending_for(self, slot: Slot) -> int:
        return self.pending[slot]

    def start(self) -> None:
        self.sharing.start()
        self._task = asyncio.ensure_future(self._crawl())

    async def stop(self) -> None:
        """As Ctrl-C does."""
        self._task.cancel()
        await self.sharing.close()

    def die(self) -> None:
        """As ``kill -9`` does."""
        self._task.cancel()
        if self.sharing._task is not None:
            self.sharing._task.cancel()

    @property
    def is_connected(self) -> bool:
        return self.sharing._is_connected is True

    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        self.heard += 1

    def paused_elsewhere(self, slot: Slot, seconds: float) -> None:
        self.pauses.append(time.monotonic() + seconds)

    async def _crawl(self) -> None:
        """As gate and queue do: all that may go goes, and asks for what is missing."""
        while True:
            now = time.monotonic()
            look_at = now + self._fleet.look_every
            for slot in self.slots:
                route = self._route(slot)
                while self.pending[slot] and route.may_go(now):
                    self._send(route, now)
                if self.pending[slot] and slot.has_room:
                    look_at = min(look_at, self._wait_or_reserve(route, now))
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), max(0.001, look_at - now))

    def _route(self, slot: Slot) -> Route:
        return Route(slot, () if self.overall is None else (self.overall,))

    def _wait_or_reserve(self, route: Route, now: float) -> float:
        if route.ready_at > now or not route.lacks_permit(now):
            return route.ready_at
        ask_at = max((b.permits.ask_at for b in route.shared), default=-math.inf)
        if ask_at > now:
            return ask_at
        self.sharing.reserve(route)
        return now + self._fleet.look_every

    def _send(self, route: Route, now: float) -> None:
        self.pending[route.slot] -= 1
        self.sent += 1
        flight = route.take(now)
        self._fleet.sent.append(Sent(now, self.name, route.slot.key))
        self.sharing.reserve(route, ahead=True)
        outcome = self._fleet.outcome(route.slot)
        if outcome.verdict.calls_for_pause:
            self._fleet.refused.append((self._fleet.sent[-1], outcome))
        asyncio.get_running_loop().call_later(
            0.05,
            lambda: self.sharing.save(
                route.slot, flight.permit, outcome, time.monotonic(), 0.5
            ),
        )


class Fleet:
    """``settings`` are those of all processes."""

    def __init__(
        self, network: Network, settings: dict[str, Any], hosts: Sequence[str] = ("a",)
    ) -> None:
        self.network = network
        url = {"POLITENESS_REDIS_URL": "redis://virtual"}
        self.policy = Policy.read(Settings({**url, **settings}))
        self.hosts = hosts
        # Seconds after which a process looks around, if nothing has happened.
        self.look_every = 1.0
        self.members: dict[str, FleetMember] = {}
        self.sent: list[Sent] = []
        self.refused: list[tuple[Sent, Outcome]] = []
        # What the host answers next, and otherwise.
        self.answers: list[Outcome] = []
        self.always = SERVED
        self._count = 0

    def outcome(self, slot: Slot) -> Outcome:
        return self.answers.pop() if self.answers else self.always

    def add(self, pages: int = 10**9) -> FleetMember:
        name = f"process{self._count}"
        self._count += 1
        member = self.members[name] = FleetMember(self, name, pages)
        member.start()
        return member

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members.values()))
