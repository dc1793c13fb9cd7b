"""Our law and others against all model servers, from a cold start on virtual time.

    python -m tests.benchmarks.governors [--hours 1] [--seeds 5]
        [--only "bucket 20" sliding] [--laws ours oracle]

The worst seed counts, figure by figure. The mark behind ours says whether it meets
the target of that server (+) or misses it (-).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from typing import TYPE_CHECKING

from scrapy_politeness.simulator import (
    ConnectionLimit,
    FixedWindow,
    Network,
    QueueingServer,
    QuotaHeaders,
    Report,
    RetryAfter,
    SlidingWindow,
    Steps,
    TokenBucket,
    always,
    day_and_night,
    simulate,
    true_wait,
)
from tests.benchmarks.laws import NAMES, law

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_politeness.simulator import Server
    from scrapy_politeness.simulator.servers import CountingServer

NETWORK = Network(latency=0.05, jitter=0.1)

# No two answers of a real server take the same time.
VARIATION = 0.2

STEP = Steps((0.0, 4.0), (1200.0, 2.0), (2400.0, 6.0))
DAY = day_and_night(1.0, 2.0)

# The start from 1/s to a limit of 20/s: seconds and refusals until 90 % of it.
QUICK_START = (40.0, 5)


@dataclass(frozen=True, slots=True)
class Target:
    """``refusals`` and ``timeouts`` are per 100 served, ``latency`` is a multiple of
    the unloaded one; ``quick`` asks for the quick start as well."""

    efficiency: float
    refusals: float = 0.0
    timeouts: float = 0.0
    latency: float = 0.0
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A server, made anew for each seed, and how clients meet it. ``connections`` is
    what the oracle knows besides the server's rate."""

    name: str
    server: Callable[[int], Server]
    target: Target | None = None
    concurrency: int = 16
    timeout: float = 30.0
    clients: int = 1
    hours: float = 0.0
    connections: int | None = None


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst of several runs; None is what never came."""

    efficiency: float
    refusals: float
    timeouts: float
    latency: float
    reached_at: float | None
    refusals_until_reached: int
    recoveries: tuple[float | None, ...]

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Worst:
        steps = zip(*(report.recoveries for report in reports), strict=True)
        return cls(
            efficiency=min(r.efficiency for r in reports),
            refusals=max(r.refusals_per_100 for r in reports),
            timeouts=max(r.timeouts_per_100 for r in reports),
            latency=max(r.median_latency / r.unloaded_latency for r in reports),
            reached_at=_latest(r.reached_at for r in reports),
            refusals_until_reached=max(r.refused_until_reached for r in reports),
            recoveries=tuple(_latest(r.after for r in step) for step in steps),
        )

    def meets(self, target: Target) -> bool:
        if target.latency:
            good = self.timeouts <= target.timeouts and self.latency < target.latency
        else:
            good = self.refusals <= target.refusals
        return good and self.efficiency >= target.efficiency

    def starts_quickly(self) -> bool:
        seconds, refusals = QUICK_START
        quick = self.reached_at is not None and self.reached_at <= seconds
        return quick and self.refusals_until_reached <= refusals


def _latest(times: Iterable[float | None]) -> float | None:
    every = list(times)
    known = [time for time in every if time is not None]
    return max(known) if len(known) == len(every) else None


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


def _fixed(limit: int, period: float, seed: int) -> CountingServer:
    """The window did not begin when the crawl does."""
    return FixedWindow(limit, period, phase=period * (seed % 5) / 5)


LIMITS: dict[str, tuple[Callable[[int], CountingServer], Target]] = {
    "bucket 20/s burst 10": (
        lambda seed: TokenBucket(20.0, 10),
        Target(0.97, 0.5, quick=True),
    ),
    "bucket 4/s burst 20": (lambda seed: TokenBucket(4.0, 20), Target(0.97, 0.5)),
    "bucket 1/s burst 5": (lambda seed: TokenBucket(1.0, 5), Target(0.97, 0.5)),
    "bucket 0.2/s burst 3": (lambda seed: TokenBucket(0.2, 3), Target(0.97, 1.5)),
    "fixed 120/min": (partial(_fixed, 120, 60.0), Target(0.96, 0.5)),
    "fixed 200/10s": (partial(_fixed, 200, 10.0), Target(0.96, 0.5, quick=True)),
    "sliding 120/min": (lambda seed: SlidingWindow(120, 60.0), Target(0.96, 0.5)),
    "sliding 20/s": (
        lambda seed: SlidingWindow(20, 1.0),
        Target(0.96, 0.5, quick=True),
    ),
    "sliding 120/min all count": (
        lambda seed: SlidingWindow(120, 60.0, counts_refused=True),
        Target(0.94, 0.5),
    ),
    "step 4-2-6/s burst 5": (lambda seed: TokenBucket(STEP, 5), Target(0.88, 0.5)),
}


def _says(
    make: Callable[[int], Server], says: Callable[[float], float], seed: int
) -> Server:
    return RetryAfter(make(seed), says)


def _counts(make: Callable[[int], CountingServer], policy: bool, seed: int) -> Server:
    return QuotaHeaders(make(seed), policy=policy)


def _connections(seed: int) -> Server:
    return ConnectionLimit(
        4, 0.15, round_trip=NETWORK.round_trip, variation=VARIATION, seed=seed
    )


def _queue(workers: int, variation: float, seed: int) -> Server:
    return QueueingServer(20.0, workers=workers, variation=variation, seed=seed)


def _limits() -> Iterator[Row]:
    for name, (make, target) in LIMITS.items():
        yield Row(f"{name}, Retry-After", partial(_says, make, true_wait), target)
        yield Row(f"{name}, silent", make, target)
        told = Target(0.98, 0.1, quick=target.quick)
        yield Row(f"{name}, quota", partial(_counts, make, True), told)
        yield Row(f"{name}, quota, no window", partial(_counts, make, False), told)


def _connection_limits() -> Iterator[Row]:
    telling = partial(_says, _connections, true_wait)
    for room in (16, 8):
        name = f"connections 4, {room} slots"
        target = Target(0.90, 1.0)
        yield Row(f"{name}, Retry-After", telling, target, room, connections=4)
        yield Row(f"{name}, silent", _connections, target, room, connections=4)


def _queues() -> Iterator[Row]:
    target = Target(0.85, timeouts=0.2, latency=2.0)
    for workers in (1, 4):
        make = partial(_queue, workers, VARIATION)
        # With few slots no wait gets as long as the timeout: the latency alone tells.
        for room in (8, 16, 100):
            name = f"queue of {workers}, {room} slots"
            yield Row(name, make, target, room, timeout=3.0)
    yield Row("queue of 1, exponential", partial(_queue, 1, 1.0), timeout=3.0)


def _others() -> Iterator[Row]:
    """Without a target: liars, rivals, a day."""
    slow, _ = LIMITS["bucket 4/s burst 20"]
    for text, said in (("0", 0.0), ("1 s", 1.0), ("1 h", 3600.0)):
        yield Row(f"bucket 4/s, says {text}", partial(_says, slow, always(said)))
    quick, _ = LIMITS["bucket 20/s burst 10"]
    shared = partial(_says, quick, true_wait)
    yield Row("bucket 20/s, 3 clients", shared, clients=3)
    yield Row("day 1/s night 2/s", lambda seed: TokenBucket(DAY, 5), hours=24.0)


ROWS = [*_limits(), *_connection_limits(), *_queues(), *_others()]


@dataclass(frozen=True, slots=True)
class Run:
    """Names and numbers only: it is sent to another process."""

    row: int
    law: str
    seed: int
    hours: float

    def report(self) -> Report:
        row = ROWS[self.row]
        server = row.server(self.seed)
        clients = [
            law(
                self.law,
                server,
                row.concurrency,
                clients=row.clients,
                connections=row.connections,
            )
            for _ in range(row.clients)
        ]
        return simulate(
            clients,
            server,
            seconds=3600 * (row.hours or self.hours),
            seed=self.seed,
            network=NETWORK,
            timeout=row.timeout,
        )


def measure(
    rows: Sequence[int], laws: Sequence[str], seeds: int, hours: float
) -> dict[tuple[int, str], Worst]:
    cells = [(row, name) for row in rows for name in laws]
    runs = [Run(*cell, seed, hours) for cell in cells for seed in range(seeds)]
    with Pool() as pool:
        reports = pool.map(Run.report, runs, chunksize=1)
    return {
        cell: Worst.of(reports[first : first + seeds])
        for cell, first in zip(cells, range(0, len(runs), seeds), strict=True)
    }


@dataclass(frozen=True, slots=True)
class Table:
    """``figures`` of the runs and of the target are put side by side; a target that
    has none (an empty text) is not judged."""

    title: str
    rows: Callable[[Row], bool]
    figures: Callable[[Worst], str]
    target: Callable[[Target], str]
    met: Callable[[Worst, Target], bool]

    def show(self, worst: dict[tuple[int, str], Worst]) -> Iterator[bool]:
        """Print it, and yield of each target whether ours meets it."""
        laws = dict.fromkeys(name for _, name in worst)
        rows = dict.fromkeys(row for row, _ in worst if self.rows(ROWS[row]))
        if not rows:
            return
        print(f"\n{self.title:48}{'target':>20}", *(f"{name:>22}" for name in laws))
        for row in rows:
            target = ROWS[row].target
            wanted = self.target(target) if target else ""
            cells = {name: f"{self.figures(worst[row, name])}  " for name in laws}
            if target and wanted and "ours" in cells:
                met = self.met(worst[row, "ours"], target)
                cells["ours"] = f"{cells['ours'][:-1]}{'+' if met else '-'}"
                yield met
            print(
                f"{ROWS[row].name:48}{wanted:>20}",
                *(f"{c:>22}" for c in cells.values()),
            )


TABLES = [
    Table(
        "efficiency, refusals per 100 served",
        lambda row: not row.name.startswith("queue"),
        lambda worst: f"{worst.efficiency:.3f} {worst.refusals:6.2f}",
        lambda target: f"{target.efficiency:.3f} {target.refusals:6.2f}",
        Worst.meets,
    ),
    Table(
        "efficiency, timeouts per 100, latency x unloaded",
        lambda row: row.name.startswith("queue"),
        lambda worst: (
            f"{worst.efficiency:.3f} {worst.timeouts:6.2f} {worst.latency:5.2f}"
        ),
        lambda target: (
            f"{target.efficiency:.3f} {target.timeouts:6.2f} {target.latency:5.2f}"
        ),
        Worst.meets,
    ),
    Table(
        "the start: seconds, refusals until 90 % of the limit",
        lambda row: not row.name.startswith("queue"),
        lambda worst: f"{_seconds(worst.reached_at)} {worst.refusals_until_reached:5d}",
        lambda target: "{:.1f} {:5d}".format(*QUICK_START) if target.quick else "",
        lambda worst, target: worst.starts_quickly(),
    ),
    Table(
        "seconds until 90 % of a changed limit",
        lambda row: row.name.startswith(("step", "day")),
        lambda worst: " ".join(map(_seconds, worst.recoveries)),
        lambda target: "",
        Worst.meets,
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names")
    parser.add_argument("--laws", nargs="+", default=NAMES, choices=NAMES)
    chosen = parser.parse_args()
    rows = [
        number
        for number, row in enumerate(ROWS)
        if any(part in row.name for part in chosen.only)
    ]
    worst = measure(rows, chosen.laws, chosen.seeds, chosen.hours)
    met = [good for table in TABLES for good in table.show(worst)]
    print(f"\nours meets {sum(met)} of {len(met)} targets")


if __name__ == "__main__":
    main()
