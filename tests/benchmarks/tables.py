"""The tables of the benchmark `governors`: the worst of all runs beside the targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.failure_rows import FAILURE_ROWS
from tests.benchmarks.rows import LIMIT_ROWS, Kind, Row, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy_politeness.simulator import Results

ROWS = [*LIMIT_ROWS, *FAILURE_ROWS]

# The start from 1/s to a limit of 20/s: seconds and refusals until 90 % of it.
QUICK_START = (40.0, 5)


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst of several runs; None is what never came. ``refusals`` are those that
    bad luck does not account for. Of a crawl, the efficiency is that of the time until
    its last page was served, and ``seconds`` the time that it took in all."""

    efficiency: float
    refusals: float
    timeouts: float
    latency: float
    reached_at: float | None
    refusals_until_reached: int
    recoveries: tuple[float | None, ...]
    seconds: float
    served: int
    tries: int | None

    @classmethod
    def of(cls, reports: Sequence[Results]) -> Worst:
        steps = zip(*(report.recoveries for report in reports), strict=True)
        crawls = [report.pages for report in reports if report.pages]
        shares = [pages.share for pages in crawls]
        tries = [page.tries for pages in crawls for page in pages.given_up]
        return cls(
            efficiency=min(shares or [r.efficiency for r in reports]),
            refusals=max(r.over_limit_per_100 for r in reports),
            timeouts=max(r.timeouts_per_100 for r in reports),
            latency=max(r.median_latency / r.unloaded_latency for r in reports),
            reached_at=_latest(r.reached_at for r in reports),
            refusals_until_reached=max(r.refused_until_reached for r in reports),
            recoveries=tuple(_latest(r.after for r in step) for step in steps),
            seconds=max(r.seconds for r in reports),
            served=min(r.served for r in reports),
            tries=min(tries, default=None),
        )

    def meets(self, row: Row, target: Target) -> bool:
        return (
            self.efficiency >= target.efficiency
            and _at_most(self.refusals, target.refusals)
            and _at_most(self.timeouts, target.timeouts)
            and _at_most(self.latency, target.latency)
            and all(_at_most(after, target.back_in) for after in self.recoveries)
            and (row.pages is None or self.served == row.pages - row.broken)
            and (target.tries is None or (self.tries or 0) >= target.tries)
        )

    def starts_quickly(self) -> bool:
        seconds, refusals = QUICK_START
        quick = self.reached_at is not None and self.reached_at <= seconds
        return quick and self.refusals_until_reached <= refusals


def _at_most(value: float | None, most: float | None) -> bool:
    return most is None or (value is not None and value <= most)


def _latest(times: Iterable[float | None]) -> float | None:
    every = list(times)
    known = [time for time in every if time is not None]
    return max(known) if len(known) == len(every) else None


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"


def _limit_figures(it: Worst | Target) -> str:
    refusals = "" if it.refusals is None else f"{it.refusals:.2f}"
    return f"{it.efficiency:.3f} {refusals:>6}"


def _queue_figures(it: Worst | Target) -> str:
    latency = "" if it.latency is None else f"{it.latency:.2f}"
    return f"{it.efficiency:.3f} {it.timeouts:6.2f} {latency:>5}"


def _pages_figures(worst: Worst) -> str:
    tries = "-" if worst.tries is None else str(worst.tries)
    return f"{worst.efficiency:.3f} {tries:>2} {worst.served:4d} {worst.seconds:5.0f}"


@dataclass(frozen=True, slots=True)
class Table:
    """``figures`` of the runs and of the target are put side by side; a target that
    has none (an empty text) is not judged."""

    title: str
    rows: Callable[[Row], bool]
    figures: Callable[[Worst], str]
    target: Callable[[Target], str]
    met: Callable[[Worst, Row, Target], bool] = Worst.meets

    def show(self, worst: dict[tuple[int, str], Worst]) -> Iterator[bool]:
        """Print it, and yield of each target whether ours meets it."""
        laws = dict.fromkeys(name for _, name in worst)
        rows = dict.fromkeys(row for row, _ in worst if self.rows(ROWS[row]))
        if not rows:
            return
        print(f"\n{self.title:52}{'target':>20}", *(f"{name:>22}" for name in laws))
        for row in rows:
            target = ROWS[row].target
            wanted = self.target(target) if target else ""
            cells = {name: f"{self.figures(worst[row, name])}  " for name in laws}
            if target and wanted and "ours" in cells:
                met = self.met(worst[row, "ours"], ROWS[row], target)
                cells["ours"] = f"{cells['ours'][:-1]}{'+' if met else '-'}"
                yield met
            print(
                f"{ROWS[row].name:52}{wanted:>20}",
                *(f"{c:>22}" for c in cells.values()),
            )


TABLES = [
    Table(
        Kind.LIMIT.value,
        lambda row: row.kind is Kind.LIMIT,
        _limit_figures,
        _limit_figures,
    ),
    Table(
        Kind.QUEUE.value,
        lambda row: row.kind is Kind.QUEUE,
        _queue_figures,
        _queue_figures,
    ),
    Table(
        Kind.RETURN.value,
        lambda row: row.kind is Kind.RETURN,
        lambda worst: (
            f"{' '.join(map(_seconds, worst.recoveries))} {worst.efficiency:.3f}"
        ),
        lambda target: _seconds(target.back_in),
    ),
    Table(
        Kind.PAGES.value,
        lambda row: row.kind is Kind.PAGES,
        _pages_figures,
        lambda target: f"{target.efficiency:.3f} {target.tries or '-':>2}",
    ),
    Table(
        "the start: seconds, refusals until 90 % of the limit",
        lambda row: row.kind is Kind.LIMIT and row in LIMIT_ROWS,
        lambda worst: f"{_seconds(worst.reached_at)} {worst.refusals_until_reached:5d}",
        lambda target: "{:.1f} {:5d}".format(*QUICK_START) if target.quick else "",
        lambda worst, row, target: worst.starts_quickly(),
    ),
    Table(
        "seconds until 90 % of a changed limit",
        lambda row: row.name.startswith(("step", "day")),
        lambda worst: " ".join(map(_seconds, worst.recoveries)),
        lambda target: "",
    ),
]
