"""What an operator, or a host, does to one process of a fleet reaches the others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness.core.outcome import Outcome, Verdict
from tests.support.accidents import emptied, evicted, gaps, limited, started
from tests.support.fleet import Fleet, Network
from tests.support.long_life import LongLife
from tests.support.redis_server import RedisServer
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fleet import FleetMember, Sent


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def set_limit(member: FleetMember, text: str) -> None:
    """As ``politeness.set_rate`` does."""
    own = Fleet(member._fleet.network, limited(text)).policy.for_slot("a")
    assert own is not None
    for slot in member.slots:
        slot.reconfigure(own.bounds, spacing=own.spacing, floor=own.floor)
        slot.announce()


@pytest.mark.parametrize("processes", [1, 3])
def test_a_rate_that_is_raised_holds_at_once(
    redis: RedisServer, processes: int
) -> None:
    async def crawl() -> list[Sent]:
        fleet = Fleet(Network(redis), limited("5/s"))
        await started(fleet, processes, 5.0)
        for limit, seconds in (("1/60s", 70.0), ("5/s", 0.0)):
            for member in fleet.members.values():
                set_limit(member, limit)
            fleet.sent.clear()
            await asyncio.sleep(seconds)
            assert len(fleet.sent) <= 3 * processes
        await asyncio.sleep(20)
        await fleet.stop()
        return fleet.sent

    sent = run(crawl())
    assert len(sent) >= 70
    assert min(gaps(sent)) >= 0.2
    assert len({one.process for one in sent}) == processes


@pytest.mark.parametrize("moment", [0.06, 0.15, 0.3])
def test_a_reset_is_not_lost_while_a_report_is_under_way(
    redis: RedisServer, moment: float
) -> None:
    async def crawl() -> tuple[float, list[float]]:
        fleet = Fleet(Network(redis, delay=0.1), limited("2/s"))
        await started(fleet, 3, 5.0)
        fleet.answers.append(Outcome(Verdict.REFUSED, "429", wait=900.0))
        while not fleet.refused:
            await asyncio.sleep(0.01)
        await asyncio.sleep(moment)
        for member in fleet.members.values():
            if member.name == fleet.refused[0][0].process:
                [slot] = member.slots
                slot.forget()
                slot.reset()
                member.sharing.forget(slot)
        reset_at = time.monotonic()
        await asyncio.sleep(60)
        await fleet.stop()
        return reset_at, [one.at for one in fleet.sent if one.at > reset_at + 35]

    _, later = run(crawl())
    assert len(later) >= 40


@pytest.mark.parametrize("accident", [evicted, emptied])
def test_a_pause_that_redis_has_lost_is_kept_by_those_in_line(
    redis: RedisServer, accident: Any
) -> None:
    """They have not heard of it when it is lost."""

    async def crawl() -> list[Sent]:
        fleet = Fleet(Network(redis), limited("1/2s"))
        await started(fleet, 20, 60.0)
        fleet.answers.append(Outcome(Verdict.REFUSED, "429", wait=90.0))
        await asyncio.sleep(8)
        accident(fleet)
        fleet.sent.clear()
        await asyncio.sleep(75)
        sent = list(fleet.sent)
        await fleet.stop()
        return sent

    assert run(crawl()) == []


def test_all_give_a_host_up_at_about_the_same_time(redis: RedisServer) -> None:
    async def crawl() -> list[float]:
        fleet = Fleet(Network(redis), limited("2/s"))
        fleet.always = Outcome(Verdict.REFUSED, "429")
        await started(fleet, 6, 0.0)
        began_at = time.monotonic()
        given_up: dict[str, float] = {}
        while len(given_up) < 6 and time.monotonic() < began_at + 600:
            await asyncio.sleep(1)
            for member in fleet.members.values():
                outage = member.slots[0].outage
                if outage is not None and outage.is_dead(60.0):
                    given_up.setdefault(member.name, time.monotonic() - began_at)
        await fleet.stop()
        return sorted(given_up.values())

    times = run(crawl())
    assert len(times) == 6
    assert times[-1] - times[0] <= 31.0
    assert times[-1] <= 200.0


@pytest.mark.parametrize("hours", [-1.0, 1.0])
def test_what_was_learned_does_not_wait_for_a_clock_that_was_set(
    redis: RedisServer, hours: float
) -> None:
    async def crawl() -> int:
        fleet = Fleet(Network(redis), {"POLITENESS_MAX_RATE": 20.0})
        await started(fleet, 2, 30.0)
        fleet.answers.append(Outcome(Verdict.REFUSED, "429", wait=1.0))
        await asyncio.sleep(5)
        fleet.network.clock_set_by += hours * 3600
        await asyncio.sleep(60)
        fleet.sent.clear()
        await asyncio.sleep(20)
        await fleet.stop()
        return len(fleet.sent)

    assert run(crawl()) > 20 * 15.0


def test_one_accident_after_the_other(redis: RedisServer) -> None:
    life = run(LongLife(redis, processes=5, seed=1).live(2400.0))
    assert life.log_lines <= 10
    assert life.pages > 500
