"""Our law and others against all model servers, from a cold start on virtual time.

    python -m tests.benchmarks.governors [--hours 1] [--seeds 5] [--first-seed 0]
        [--only "bucket 20" sliding] [--laws ours oracle] [--jobs 2]
        [--save before.json] [--against before.json]

The worst seed counts, figure by figure. The mark behind ours says whether it meets
the target of that server (+) or misses it (-). What was tuned with some seeds is to be
judged with others. With ``--against``, what has become worse than in that file is
listed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_politeness.simulator import Results, simulate
from tests.benchmarks.laws import NAMES, law
from tests.benchmarks.rows import NETWORK
from tests.benchmarks.tables import ROWS, TABLES, Worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Cell = tuple[int, str]

# Runs differ by as much without a reason.
_WORSE = 0.01

# Lines about the progress, where they do not replace each other.
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Run:
    """Names and numbers only: it is sent to another process."""

    row: int
    law: str
    seed: int
    hours: float

    def report(self) -> Results:
        row = ROWS[self.row]
        server = row.server(self.seed)
        clients = [
            law(
                self.law,
                server,
                row.concurrency,
                bounds=row.bounds,
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
            pages=row.pages,
            persistence=row.persistence,
        )


def measure(
    rows: Sequence[int], laws: Sequence[str], seeds: range, hours: float, jobs: int
) -> dict[Cell, Worst]:
    cells = [(row, name) for row in rows for name in laws]
    runs = [Run(*cell, seed, hours) for cell in cells for seed in seeds]
    reports = []
    with Pool(jobs) as pool:
        for report in pool.imap(Run.report, runs):
            reports.append(report)
            _show_progress(len(reports), len(runs))
    return {
        cell: Worst.of(reports[first : first + len(seeds)])
        for cell, first in zip(cells, range(0, len(runs), len(seeds)), strict=True)
    }


def _show_progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == of else "\r"
    elif done % -(-of // _MOST_LINES):
        return
    else:
        end = "\n"
    print(f"{done} of {of} runs", end=end, file=sys.stderr, flush=True)


def save(worst: dict[Cell, Worst], path: Path) -> None:
    figures = {
        f"{ROWS[row].name} | {name}": asdict(w) for (row, name), w in worst.items()
    }
    path.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def worse_than(path: Path, worst: dict[Cell, Worst]) -> Iterator[str]:
    """Say where ours serves less than in that file, or is refused more."""
    before = json.loads(path.read_text(encoding="utf-8"))
    for (row, name), now in worst.items():
        then = before.get(f"{ROWS[row].name} | {name}")
        if name != "ours" or then is None:
            continue
        if now.efficiency < then["efficiency"] - _WORSE:
            change = f"{then['efficiency']:.3f} -> {now.efficiency:.3f}"
            yield f"{ROWS[row].name}: efficiency {change}"
        for figure in ("refusals", "timeouts"):
            was, is_now = then[figure], getattr(now, figure)
            if is_now > max(was, 0.5):
                yield f"{ROWS[row].name}: {figure} {was:.2f} -> {is_now:.2f} per 100"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names")
    parser.add_argument("--laws", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    chosen = parser.parse_args()
    rows = [
        number
        for number, row in enumerate(ROWS)
        if any(part in row.name for part in chosen.only)
    ]
    began_at = time.monotonic()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    worst = measure(rows, chosen.laws, seeds, chosen.hours, chosen.jobs)
    met = [good for table in TABLES for good in table.show(worst)]
    took = time.monotonic() - began_at
    print(f"\nours meets {sum(met)} of {len(met)} targets; measured in {took:.0f} s")
    if chosen.against:
        print(*worse_than(chosen.against, worst), sep="\n")
    if chosen.save:
        save(worst, chosen.save)


if __name__ == "__main__":
    main()
