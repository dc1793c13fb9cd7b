"""What every adapter of sharing does: alone, with Redis, and while Redis is gone."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from scrapy.settings import Settings

from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.budget import Budget
from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.outcome import Outcome, Verdict
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.core.route import Route
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.sharing.alone import Alone
from scrapy_politeness.sharing.redis.adapter import RedisSharing
from scrapy_politeness.sharing.redis.connection import Connection
from tests.support.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from scrapy_politeness.core.governor.host_model import Change
    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.sharing.port import Sharing
    from scrapy_politeness.sharing.redis.connection import Call

T = TypeVar("T")

RATE = 40.0
BOUNDS = Bounds(start_rate=RATE, max_rate=RATE)
SERVED = Outcome(Verdict.SERVED)
REFUSED = Outcome(Verdict.REFUSED, "429", wait=60.0)

# Timers, and leases that are used late.
INACCURACY = 0.03
PATIENCE = 10.0


class Stats:
    def inc_value(self, key: str, count: int = 1) -> None:
        pass


class Heard:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.changes: list[Change] = []
        self.pauses: list[float] = []

    def learned(self, slot: Slot, outcome: Outcome, change: Change) -> None:
        self.outcomes.append(outcome)
        self.changes.append(change)

    def paused_elsewhere(self, slot: Slot, seconds: float) -> None:
        self.pauses.append(seconds)


def redis_sharing(url: str, **settings: Any) -> RedisSharing:
    policy = Policy.read(Settings({"POLITENESS_REDIS_URL": url, **settings}))
    stats: Any = Stats()
    return RedisSharing(url, policy, stats, pending=lambda slot: 100)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["alone", "redis", "redis that is gone"])
def adapter(request: pytest.FixtureRequest) -> Callable[[], Sharing]:
    if request.param == "alone":
        return Alone
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("server")
        server.client().flushall()
        # All that a route needs is reserved at once, so it must be on one node.
        return lambda: redis_sharing(server.url, POLITENESS_GLOBAL_LIMIT="1/s")
    return lambda: redis_sharing(RedisServer().url)


class Process:
    """One process with one slot, and budgets that the queue knows of, or does not."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.heard = Heard()
        sharing.hear(self.heard)
        self.slot = Slot("example.org", BOUNDS, spacing=0.0, concurrency=8)
        self.slot.listeners = [lambda slot: self._news.set()]
        self._news = asyncio.Event()
        sharing.join(self.slot, "slot:example.org")

    def budget(self, name: str, rate: int) -> Budget:
        budget = Budget(name, Limit(rate, 1.0))
        self.sharing.join(budget, name)
        return budget

    async def send(self, route: Route | None = None) -> Permit:
        """Wait as the gate does."""
        route = route or Route(self.slot)
        deadline = time.monotonic() + PATIENCE
        while not route.may_go(now := time.monotonic()):
            assert now < deadline, "no permit"
            wait = route.ready_at - now
            if wait <= 0:
                self.sharing.reserve(route)
                wait = 1.0
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(wait, 1.0))
            except asyncio.TimeoutError:
                continue
        permit = route.take(now).permit
        self.sharing.reserve(route, ahead=True)
        return permit

    def save(self, permit: Permit, outcome: Outcome) -> None:
        self.sharing.save(self.slot, permit, outcome, time.monotonic(), 0.5)

    async def fetch(self, number: int, route: Route | None = None) -> list[float]:
        """Return when each request was sent; all are served."""
        times = []
        for _ in range(number):
            permit = await self.send(route)
            times.append(permit.sent_at)
            self.save(permit, SERVED)
        return times


@asynccontextmanager
async def started(sharing: Sharing) -> AsyncIterator[Process]:
    process = Process(sharing)
    sharing.start()
    try:
        yield process
    finally:
        await sharing.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Apart from the event loop of the other tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def test_requests_are_spaced_as_the_slot_says(adapter: Callable[[], Sharing]) -> None:
    async def crawl() -> list[float]:
        async with started(adapter()) as process:
            return await process.fetch(20)

    times = run(crawl())
    assert times[-1] - times[0] >= 19 / RATE - INACCURACY


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_budget_of_many_slots_is_kept(
    is_seen: bool, adapter: Callable[[], Sharing]
) -> None:
    async def crawl() -> list[float]:
        async with started(adapter()) as process:
            budgets = (process.budget("the whole crawl", 10),)
            shared, unseen = (budgets, ()) if is_seen else ((), budgets)
            return await process.fetch(10, Route(process.slot, shared, unseen))

    times = run(crawl())
    assert times[-1] - times[0] >= 9 / 10 - INACCURACY


def test_every_outcome_has_been_heard_of_when_it_closes(
    adapter: Callable[[], Sharing],
) -> None:
    async def crawl() -> Heard:
        async with started(adapter()) as process:
            await process.fetch(7)
        return process.heard

    assert run(crawl()).outcomes == [SERVED] * 7


def test_a_refusal_pauses_the_slot_and_halves_its_rate(
    adapter: Callable[[], Sharing],
) -> None:
    async def crawl() -> Process:
        async with started(adapter()) as process:
            await process.fetch(3)
            permit = await process.send()
            process.save(permit, REFUSED)
            # Before it is known what that means for the others, too.
            assert not Route(process.slot).may_go(time.monotonic())
        return process

    process = run(crawl())
    [change] = [change for change in process.heard.changes if change.cut]
    assert change.pause == pytest.approx(60.0, rel=0.2)
    assert change.new_rate == pytest.approx(change.old_rate / 2)
    assert process.slot.paused_until > time.monotonic() + 50


def test_what_was_learned_can_be_forgotten(adapter: Callable[[], Sharing]) -> None:
    async def crawl() -> Slot:
        async with started(adapter()) as process:
            process.save(await process.send(), REFUSED)
            for _ in range(200):
                if process.heard.changes:
                    break
                await asyncio.sleep(0.01)
            assert process.slot.rate < RATE
            process.slot.forget()
            process.slot.unblock(Block.PAUSE)
            process.sharing.forget(process.slot)
            await process.send()
        return process.slot

    assert run(crawl()).rate == RATE


def test_a_long_visit_replaces_what_an_earlier_one_has_found(
    adapter: Callable[[], Sharing],
) -> None:
    async def crawl() -> Slot:
        async with started(adapter()) as process:
            process.slot.recall(Learned(None, None, 3), process.sharing.now)
            await process.fetch(5)
            assert process.slot.learned is None
            await process.fetch(20)
        return process.slot

    assert run(crawl()).learned is not None


def test_one_that_was_never_started_can_be_closed(
    adapter: Callable[[], Sharing],
) -> None:
    async def crawl() -> None:
        await adapter().close()

    run(crawl())


def test_what_was_asked_together_is_doubted_together_when_the_clock_is_set_forward(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.client().flushall()
    answer_calls, set_by = Connection.run, 0
    doubted: set[str] = set()

    async def run_later(self: Connection, calls: Sequence[Call]) -> list[Any]:
        nonlocal set_by
        grants = [call for call in calls if call.script == "grant"]
        if len(grants) == 2:
            # By so little that the server itself does not notice.
            set_by = 400_000
        doubted.update(call.keys[1] for call in grants if call.arguments[-1] == 2)
        answers = await answer_calls(self, calls)
        return [
            [answer[0] + set_by, *answer[1:]] if isinstance(answer, list) else answer
            for answer in answers
        ]

    async def crawl() -> None:
        async with started(redis_sharing(server.url)) as process:
            await process.send()
            others = [
                Slot(f"{n}.example.org", BOUNDS, spacing=0.0, concurrency=8)
                for n in range(2)
            ]
            for slot in others:
                process.sharing.join(slot, f"slot:{slot.key}")
                process.sharing.reserve(Route(slot))
            deadline = time.monotonic() + PATIENCE
            while len(doubted) < 3 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)

    monkeypatch.setattr(Connection, "run", run_later)
    run(crawl())
    assert len(doubted) == 3


class TestTwoProcesses:
    """What only an adapter that reaches others can show."""

    @pytest.fixture
    def two(self, server: RedisServer) -> Callable[[], tuple[Sharing, Sharing]]:
        server.client().flushall()
        return lambda: (redis_sharing(server.url), redis_sharing(server.url))

    def test_the_sum_keeps_to_the_rate(
        self, two: Callable[[], tuple[Sharing, Sharing]]
    ) -> None:
        async def crawl() -> list[float]:
            one, other = two()
            async with started(one) as first, started(other) as second:
                sent = await asyncio.gather(first.fetch(15), second.fetch(15))
            return [*sent[0], *sent[1]]

        times = run(crawl())
        assert max(times) - min(times) >= 29 / RATE - 0.05

    def test_a_pause_is_heard_by_the_other(
        self, two: Callable[[], tuple[Sharing, Sharing]]
    ) -> None:
        async def crawl() -> Process:
            one, other = two()
            async with started(one) as first, started(other) as second:
                await second.fetch(1)
                first.save(await first.send(), REFUSED)
                deadline = time.monotonic() + PATIENCE
                while not second.heard.pauses and time.monotonic() < deadline:
                    second.sharing.reserve(Route(second.slot))
                    await asyncio.sleep(0.05)
            return second

        second = run(crawl())
        [seconds] = second.heard.pauses
        assert seconds == pytest.approx(60.0, rel=0.2)
        assert second.slot.paused_until > time.monotonic() + 40
        # And what the first has learned from it.
        assert second.slot.learner.model is not None
        assert second.slot.learner.model.governor.rate == pytest.approx(RATE / 2)
