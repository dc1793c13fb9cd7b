"""A fleet of processes on virtual time: whatever happens to Redis, limits hold."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scrapy_politeness.core.outcome import Outcome, Verdict
from tests.support.accidents import (
    ACCIDENTS,
    TOLERANCE,
    TRIALS,
    away,
    gaps,
    limited,
    partly_cut_off,
    replica,
    started,
    well,
)
from tests.support.fleet import Fleet, Network
from tests.support.redis_server import RedisServer
from tests.support.virtual_time import VirtualLoop, run

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tests.support.fleet import Sent


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize(("limit", "rate"), [("1/s", 1), ("20/s", 20)])
@pytest.mark.parametrize("round_trip", [0.1, 0.4])
def test_a_distant_server_slows_nobody_down(
    redis: RedisServer, round_trip: float, limit: str, rate: int, processes: int
) -> None:
    seconds = 100 // rate + 5

    async def crawl() -> int:
        network = Network(redis, round_trip / 2, jitter=round_trip / 10)
        fleet = Fleet(network, limited(limit))
        await started(fleet, processes, 5)
        fleet.sent.clear()
        await asyncio.sleep(seconds)
        pages = len(fleet.sent)
        await fleet.stop()
        return pages

    assert run(crawl()) >= 0.9 * rate * seconds - 1


@pytest.mark.parametrize("rate", [1, 20])
def test_processes_further_away_leave_the_others_their_share(
    redis: RedisServer, rate: int
) -> None:
    async def crawl() -> Counter[str]:
        network = Network(redis)
        network.delays = {"process0": 0.15, "process1": 0.15}
        fleet = Fleet(network, limited(f"{rate}/s"))
        await started(fleet, 4, 10.0)
        fleet.sent.clear()
        await asyncio.sleep(200 / rate)
        await fleet.stop()
        return Counter(one.process for one in fleet.sent)

    served = run(crawl())
    assert len(served) == 4
    assert min(served.values()) >= 15
    assert served.total() >= 170


def test_a_server_that_is_too_far_away_is_not_used(redis: RedisServer) -> None:
    async def crawl() -> tuple[bool | None, int]:
        fleet = Fleet(Network(redis, delay=0.4), limited("1/s"))
        await started(fleet, 2)
        is_connected = fleet.members["process0"].sharing._is_connected
        pages = len(fleet.sent)
        await fleet.stop()
        return is_connected, pages

    is_connected, pages = run(crawl())
    assert is_connected is False
    assert pages >= 15


@pytest.mark.parametrize("trial", TRIALS)
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_every_accident_is_survived(
    redis: RedisServer, accident: Any, trial: Any
) -> None:
    """No gap too short, no sum too high, no silence broken, nothing lost, a short log,
    and soon all is as before."""
    run(trial(redis, accident, 3)).check()


@pytest.mark.parametrize("accident", [away, replica, partly_cut_off])
def test_the_crawl_goes_on_meanwhile(redis: RedisServer, accident: Any) -> None:
    async def crawl() -> int:
        fleet = Fleet(Network(redis), limited("1/4s"))
        await started(fleet, 3, 37.0)
        accident(fleet)
        fleet.sent.clear()
        await asyncio.sleep(120)
        await fleet.stop()
        well(fleet)
        return len(fleet.sent)

    # Of 30 that the limit allows.
    assert run(crawl()) >= 20


@pytest.mark.parametrize("seconds", [-3600.0, -2.0, 2.0, 61.0])
@pytest.mark.parametrize("memory", ["kept", "lost"])
def test_gaps_are_kept_by_those_who_have_not_heard_that_the_clock_was_set(
    redis: RedisServer, memory: str, seconds: float
) -> None:
    """When Redis is gone, they take their turns by the clock of before."""

    async def crawl() -> list[float]:
        fleet = Fleet(Network(redis), limited("1/2s"))
        await started(fleet, 12, 60.0)
        fleet.network.clock_set_by += seconds
        await asyncio.sleep(5)
        if memory == "lost":
            fleet.network.lose_memory()
        await asyncio.sleep(5)
        fleet.network.is_down = True
        await asyncio.sleep(120)
        await fleet.stop()
        return gaps(fleet.sent)

    assert min(run(crawl())) >= 2.0 - TOLERANCE


@pytest.mark.parametrize("clock_set_by", [0.0, -2.0, 2.0])
def test_a_pause_that_was_learned_alone_is_for_all_later(
    redis: RedisServer, clock_set_by: float
) -> None:
    async def crawl() -> list[Sent]:
        network = Network(redis)
        fleet = Fleet(network, limited("2/s"))
        await started(fleet, 3, 5.0)
        network.is_down = True
        await asyncio.sleep(10)
        fleet.answers.append(Outcome(Verdict.REFUSED, "429", wait=120.0))
        await asyncio.sleep(5)
        network.clock_set_by += clock_set_by
        network.is_down = False
        await asyncio.sleep(5)
        back_at = time.monotonic()
        await asyncio.sleep(60)
        await fleet.stop()
        return [one for one in fleet.sent if one.at > back_at]

    assert run(crawl()) == []


def test_one_that_ends_leaves_its_share_and_one_that_is_killed_keeps_it_for_a_while(
    redis: RedisServer,
) -> None:
    async def crawl() -> list[int]:
        fleet = Fleet(Network(redis), limited("1/s"))
        await started(fleet, 2, 10.0)
        counts = []

        async def count(seconds: float) -> None:
            fleet.sent.clear()
            await asyncio.sleep(seconds)
            counts.append(len(fleet.sent))

        await fleet.members.pop("process1").stop()
        await count(30)
        fleet.add()
        await asyncio.sleep(10)
        fleet.members.pop("process2").die()
        await asyncio.sleep(5)
        await count(30)
        await asyncio.sleep(120)
        await count(30)
        await fleet.stop()
        return counts

    ended, killed, later = run(crawl())
    assert ended >= 27
    assert 12 <= killed <= 16
    assert later >= 27


@pytest.mark.parametrize("processes", [1, 4, 16])
def test_calls_per_page_do_not_grow_with_the_processes(
    redis: RedisServer, processes: int
) -> None:
    async def crawl() -> float:
        network = Network(redis)
        shared = {
            "POLITENESS_GLOBAL_LIMIT": "20/s",
            "POLITENESS_START_RATE": 20,
            "POLITENESS_MAX_RATE": 20,
        }
        fleet = Fleet(network, shared, hosts=[f"h{n}" for n in range(20)])
        await started(fleet, processes, 3.0)
        fleet.sent.clear()
        network.calls.clear()
        await asyncio.sleep(5)
        calls, pages = network.calls.total(), len(fleet.sent)
        await fleet.stop()
        assert pages > 85
        return calls / pages

    assert run(crawl()) < 4.0


@pytest.mark.parametrize("processes", [1, 4, 16, 40])
def test_calls_per_page_do_not_grow_with_the_processes_in_line(
    redis: RedisServer, processes: int
) -> None:
    async def crawl() -> float:
        fleet = Fleet(Network(redis), limited("1/s"))
        await started(fleet, processes, 60.0)
        fleet.sent.clear()
        fleet.network.calls.clear()
        await asyncio.sleep(60)
        calls, pages = fleet.network.calls.total(), len(fleet.sent)
        await fleet.stop()
        assert pages > 50
        return calls / pages

    assert run(crawl()) < 2.5


class AFleet(RuleBasedStateMachine):
    """Anything may happen to the server, the network and the processes, in any order.
    A process that starts while others cannot be reached does not know of them, so none
    does here."""

    server: RedisServer
    processes = (2, 6)

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.loop = VirtualLoop()
        patches = (("monotonic", self.loop.time), ("time", self.loop.wall_time))
        for name, clock in patches:
            self.stack.enter_context(mock.patch(f"time.{name}", clock))
        self.network = Network(self.server)
        self.fleet = Fleet(self.network, limited("1/2s"))
        self.checked, self.delay = 0, 0.0005
        self.paused: list[tuple[float, float]] = []

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    @initialize(count=st.integers(2, 6), delay=st.sampled_from([0.0005, 0.02, 0.1]))
    def start(self, count: int, delay: float) -> None:
        self.network.delay = self.delay = delay
        low, high = type(self).processes
        self.do(started(self.fleet, max(low, min(count, high)), 10.0))

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(accident=st.sampled_from(ACCIDENTS))
    def break_down(self, accident: Any) -> None:
        accident(self.fleet)

    @rule()
    def mend(self) -> None:
        well(self.fleet, self.delay)

    @rule()
    def refuse(self) -> None:
        self.fleet.answers.append(Outcome(Verdict.REFUSED, "429", wait=15.0))

    @precondition(lambda self: len(self.fleet.members) > 1)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.fleet.members)))
        self.fleet.members.pop(name).die()

    @invariant()
    def no_gap_is_too_short(self) -> None:
        sent = self.fleet.sent[max(0, self.checked - 1) :]
        self.checked = len(self.fleet.sent)
        assert min(gaps(sent), default=2.0) >= 2.0 - TOLERANCE

    def teardown(self) -> None:
        try:
            well(self.fleet, self.delay)
            self.fleet.answers.clear()
            # Seats of those that were killed are free after two minutes.
            self.do(asyncio.sleep(130))
            self.no_gap_is_too_short()
            self.fleet.sent.clear()
            self.do(asyncio.sleep(40))
            served = Counter(one.process for one in self.fleet.sent)
            assert set(served) == set(self.fleet.members), "a process starves"
            self.do(self.fleet.stop())
        finally:
            self.stack.close()
            self.loop.close()


def test_limits_hold_whatever_happens_in_any_order(redis: RedisServer) -> None:
    AFleet.server = redis
    few = settings(
        max_examples=4,
        stateful_step_count=10,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.reuse, Phase.generate],  # to shrink takes minutes
    )
    # The tests' own thread has its event loop already.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(run_state_machine_as_test, AFleet, settings=few).result()
