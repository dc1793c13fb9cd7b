"""Hosts that say no without a status, on virtual time.

    python -m tests.benchmarks.blocks [--seeds 5] [--first-seed 0] [--only port]

Ports that close above a limit, an outage, connections that are cut. The worst seed
counts, figure by figure. "Back" is how many seconds after the outage the rate was at
least 0.9 of what it was before.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator import (
    ClosingPort,
    Downtime,
    RandomFailures,
    Server,
    SlidingWindow,
    error,
    simulate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DAY = 86400.0
_CONCURRENCY = 8

_DEFAULTS = Bounds()
_SEARCHING = Bounds(max_rate=100.0)

_DOWN = (60.0, 660.0)


@dataclass(frozen=True)
class Row:
    """The fastest possible crawl takes ``fastest`` seconds."""

    name: str
    server: Callable[[int], Server]
    pages: int
    fastest: float
    bounds: Bounds = _DEFAULTS
    down: tuple[float, float] | None = None


@dataclass(frozen=True)
class Score:
    lost: int
    seconds: float
    blocks: int
    back: float


def _port(
    limit: int, window: float, seconds: float, resets: float, seed: int
) -> Server:
    port = ClosingPort(SlidingWindow(limit, window), seconds)
    return RandomFailures(port, resets, error(), seed=seed) if resets else port


def _outage(seed: int) -> Server:
    return Downtime(Server(10.0), *_DOWN, error("502"))


def _resets(share: float, seed: int) -> Server:
    return RandomFailures(Server(10.0), share, error(), seed=seed)


ROWS = (
    *(
        row
        for resets, text in ((0.0, ""), (0.005, ", 0.5 % resets"))
        for row in (
            Row(
                f"port closes for 10 s above 100 in 5 s{text}",
                partial(_port, 100, 5.0, 10.0, resets),
                1000,
                1000 / 20,
                _SEARCHING,
            ),
            Row(
                f"port closes for 60 s above 15 a minute{text}",
                partial(_port, 15, 60.0, 60.0, resets),
                1000,
                1000 / 0.25,
            ),
        )
    ),
    Row("ten minutes of 502", _outage, 2000, 2000 / 10 + 600, down=_DOWN),
    Row("30 % resets", partial(_resets, 0.3), 2000, 2000 / 7),
)


def measure(row: Row, seed: int) -> Score:
    server = row.server(seed)
    slot = Slot("example.org", row.bounds, spacing=0.0, concurrency=_CONCURRENCY)
    found = simulate([slot], server, seconds=_DAY, seed=seed, pages=row.pages)
    port = getattr(server, "server", server)
    port = server if isinstance(server, ClosingPort) else port
    closed = port.closed_at if isinstance(port, ClosingPort) else []
    back = 0.0 if row.down is None else _back(found.trace, *row.down)
    return Score(row.pages - found.served, found.seconds, len(closed), back)


def _back(trace: Sequence[tuple[float, float]], began: float, ended: float) -> float:
    before = [rate for at, rate in trace if at < began][-1]
    high = (at for at, rate in trace if at > ended and rate >= 0.9 * before)
    return next(high, math.inf) - ended


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names")
    options = parser.parse_args()
    print("| host | pages | lost | blocks | back | seconds | fastest | share |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for row in ROWS:
        if not any(part in row.name for part in options.only):
            continue
        scores = [measure(row, seed) for seed in seeds]
        seconds = max(score.seconds for score in scores)
        cells = (
            row.name,
            row.pages,
            max(score.lost for score in scores),
            max(score.blocks for score in scores),
            f"{max(score.back for score in scores):.0f}" if row.down else "",
            f"{seconds:.0f}",
            f"{row.fastest:.0f}",
            f"{row.fastest / seconds:.2f}",
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
