"""A fleet of processes that share a Redis server, on virtual time.

    python -m tests.benchmarks.fleet [--only distance calls accidents random]
    python -m tests.benchmarks.fleet --only week [--processes 50] [--days 7]

How much of a limit is used at which distance; how many calls to Redis a page takes;
what comes of any accident, each many times at random moments; long random sequences
of accidents; and a week in the life of a large fleet, which takes a quarter of an hour
of CPU time. The scripts run on a real server, only time and network are simulated, so
that a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.accidents import ACCIDENTS, TRIALS, limited, started
from tests.support.fleet import Fleet, Network
from tests.support.long_life import Life, LongLife
from tests.support.redis_server import RedisServer
from tests.support.virtual_time import run
from tests.unit.test_fleet import AFleet

GLOBAL: dict[str, Any] = {
    "POLITENESS_GLOBAL_LIMIT": "20/s",
    "POLITENESS_START_RATE": 20,
    "POLITENESS_MAX_RATE": 20,
}


async def measured(fleet: Fleet, processes: int, seconds: float) -> tuple[float, float]:
    """Return pages per second, and calls per page."""
    await started(fleet, processes, 10.0)
    fleet.sent.clear()
    fleet.network.calls.clear()
    await asyncio.sleep(seconds)
    pages, calls = len(fleet.sent), fleet.network.calls.total()
    await fleet.stop()
    return pages / seconds, calls / max(1, pages)


def measure_distance(server: RedisServer) -> None:
    print("| share of the limit | 1 ms | 50 ms | 100 ms | 200 ms | 400 ms |")
    print("|---|--:|--:|--:|--:|--:|")
    for rate in (1, 5, 20):
        for processes in (1, 4):
            row = []
            for round_trip in (0.001, 0.05, 0.1, 0.2, 0.4):
                network = Network(server, round_trip / 2, jitter=round_trip / 10)
                fleet = Fleet(network, limited(f"{rate}/s"))
                used, _ = run(measured(fleet, processes, 60.0))
                row.append(f"{used / rate:.2f}")
            print(f"| {rate}/s, {processes} | {' | '.join(row)} |", flush=True)


def measure_calls(server: RedisServer) -> None:
    print("\n| calls per page | 1 | 4 | 16 | 64 |\n|---|--:|--:|--:|--:|")
    hosts = [f"h{n}" for n in range(1000)]
    each: dict[str, Any] = {"POLITENESS_START_RATE": 1, "POLITENESS_MAX_RATE": 1}
    for title, own, names, seconds in (
        ("one host, 20/s", limited("20/s"), ["a"], 30.0),
        ("one host, 1/s", limited("1/s"), ["a"], 120.0),
        ("100 hosts, 1/s each", each, hosts[:100], 5.0),
        ("1,000 hosts, 1/s each", each, hosts, 3.0),
        ("a global limit of 20/s, 100 hosts", GLOBAL, hosts[:100], 10.0),
    ):
        row = []
        for processes in (1, 4, 16, 64):
            fleet = Fleet(Network(server), own, names)
            _, calls = run(measured(fleet, processes, seconds))
            row.append(f"{calls:.2f}")
            print(f"  {title}, {processes}: {calls:.2f}", flush=True)
        print(f"| {title} | {' | '.join(row)} |", flush=True)


def measure_accidents(server: RedisServer, times: int) -> None:
    """Each of them that many times, each time in three fleets; see ``TRIALS``."""
    print("\n| accident | shortest gap | above the limit | broken silences | ", end="")
    print("lost | log lines per minute | back after | speed after 5 s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for accident in ACCIDENTS:
        records = [
            run(trial(server, accident, seed))
            for trial in TRIALS
            for seed in range(times)
        ]
        for record in records:
            record.check()
        row = [
            f"{min(record.gap for record in records):.2f}",
            f"{max(record.excess for record in records):.1f}",
            f"{sum(record.broken for record in records)}",
            f"{sum(record.lost for record in records)}",
            f"{max(record.log_lines for record in records)}",
            f"{max(record.back_after for record in records):.1f} s",
            f"{median(record.speed for record in records):.2f}",
        ]
        name = accident.__name__.replace("_", " ")
        print(f"| {name} | {' | '.join(row)} |", flush=True)


def measure_random(server: RedisServer, times: int) -> None:
    AFleet.server = server
    many = settings(
        max_examples=times,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(AFleet, settings=many)
    print(f"\n{times} random sequences of up to 50 events: limits held")


def measure_week(server: RedisServer, processes: int, days: float, seed: int) -> None:
    def report(life: Life) -> None:
        accidents = life.accidents.total()
        print(
            f"{life.seconds / 86400:.2f} days: {accidents} accidents, {life.silences} "
            f"pauses, {life.pages} pages, shortest gap {life.shortest_gap:.3f} s, "
            f"longest wait {life.longest_wait:.0f} s",
            flush=True,
        )

    life = run(LongLife(server, processes, seed).live(days * 86400, report))
    report(life)
    print(f"{life.calls} calls, {life.log_lines} lines in a minute of a process's log")


PARTS = ("distance", "calls", "accidents", "random", "week")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with RedisServer() as server:
        if "distance" in options.only:
            measure_distance(server)
        if "calls" in options.only:
            measure_calls(server)
        if "accidents" in options.only:
            measure_accidents(server, options.times)
        if "random" in options.only:
            measure_random(server, options.times)
        if "week" in options.only:
            measure_week(server, options.processes, options.days, options.seed)


if __name__ == "__main__":
    main()
