"""What came of the long run: accounts, memory, what was left, drift, limits."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import linear_regression, mean, median
from typing import TYPE_CHECKING, Any

from tests.benchmarks.long_run_plan import ROBOTS, STEADY, STEADY_KINDS, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.benchmarks.long_run_site import Visit
    from tests.support.crawl import Crawl

# Shares of the crawl: until then memory may grow, and rates may settle.
_WARM = 0.4
_SETTLED = 0.2
_TENTH = 0.1

# What is good enough: megabytes in 100,000 pages, and by how much a rate may differ.
_FLAT = 5.0
_NO_DRIFT = 0.05

_MOST_SHOWN = 10


@dataclass(frozen=True)
class Check:
    name: str
    good: bool
    text: str

    def __str__(self) -> str:
        return f"{'+' if self.good else '-'} {self.name}: {self.text}"


def print_report(
    plan: Plan, crawl: Crawl, gauge: list[dict[str, Any]], visits: Sequence[Visit]
) -> bool:
    """Return whether all is as it should be."""
    print()
    readings = [reading for reading in gauge if "done" in reading]
    left: dict[str, Any] = next((r["left"] for r in gauge if "left" in r), {})
    grown = next((r["grown"] for r in gauge if "grown" in r), ())
    checks = [
        _ending(crawl),
        _accounts(plan, visits),
        _memory(readings),
        _loop(readings),
        _left(left),
        *_drifts(plan, visits),
        *_limits(plan, visits),
    ]
    for check in checks:
        print(check)
    _print_extremes(readings)
    _print_stats(crawl)
    for line in grown:
        print(line)
    return all(check.good for check in checks)


def _ending(crawl: Crawl) -> Check:
    reason = crawl.stats.get("finish_reason")
    tracebacks = crawl.log.count("Traceback")
    good = crawl.returncode == 0 and reason == "finished" and not tracebacks
    if not good:
        print(crawl.log[-5000:])
    text = f"{reason} after {crawl.seconds:.0f} s, {crawl.cpu_seconds:.0f} s of CPU"
    return Check("end", good, f"{text}, {tracebacks} tracebacks")


def _accounts(plan: Plan, visits: Sequence[Visit]) -> Check:
    pages = [visit for visit in visits if visit.page != ROBOTS]
    served = Counter((v.owner, v.page) for v in pages if v.status == 200)
    planned = {(h, p) for h in range(plan.hosts) for p in range(plan.pages(h))}
    missing = planned - served.keys()
    dead = {page for page in missing if plan.is_dead(page[0])}
    twice = [page for page, times in served.items() if times > 1]
    unexplained = sorted(missing - dead)
    statuses = Counter(visit.status for visit in pages)
    return Check(
        "every page once",
        not unexplained and not twice,
        f"{len(served)} of {len(planned)} pages served, {len(dead)} of hosts that "
        f"always refuse, missing besides {unexplained[:_MOST_SHOWN]}, more than once "
        f"{twice[:_MOST_SHOWN]}; {len(pages)} requests by status "
        f"{dict(sorted(statuses.items()))}, 0 where the connection was dropped",
    )


def _memory(readings: list[dict[str, Any]]) -> Check:
    late = _after_warm_up(readings)
    if len(late) < 3:
        return Check("memory", False, "too few readings")
    pages = [reading["done"] / 100_000 for reading in late]
    slope = linear_regression(pages, [reading["memory"] for reading in late]).slope
    first, last = late[0]["memory"], late[-1]["memory"]
    return Check(
        "memory",
        slope < _FLAT,
        f"{first:.1f} MB after the warm-up, {last:.1f} MB at the end, "
        f"{slope:+.2f} MB in 100,000 pages",
    )


def _after_warm_up(readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = readings[-1]["done"] if readings else 0
    return [reading for reading in readings if reading["done"] >= _WARM * done]


def _loop(readings: list[dict[str, Any]]) -> Check:
    usual = median(reading["late_median"] for reading in readings)
    worst = max(reading["late"] for reading in readings)
    return Check("event loop", True, f"late by {usual:.4f} s, at most {worst:.3f} s")


def _left(left: dict[str, Any]) -> Check:
    """Slots, tallies and what robots.txt said are known until the process ends."""
    counts = ("tickets", "sent", "lines", "robots_asked", "sleepers")
    counted = {name: left.get(name, 0) for name in (*counts, "queued")}
    good = bool(left) and not any(counted.values())
    good = good and not left["tasks"] and not left["timers"]
    shown = {**counted, "tasks": left.get("tasks"), "timers": left.get("timers")}
    return Check("left behind", good, f"{shown}; objects {left.get('objects')}")


def _drifts(plan: Plan, visits: Sequence[Visit]) -> Iterable[Check]:
    """Of the hosts visited all the time: the rate soon after the start, and at last."""
    times = _times(visits)
    for kind in STEADY_KINDS:
        of_kind = [host for host in range(STEADY) if plan.kind(host) == kind]
        early = mean(_rate(times[host], _SETTLED) for host in of_kind)
        late = mean(_rate(times[host], 1 - _TENTH) for host in of_kind)
        yield Check(
            f"drift, {kind}",
            abs(late / early - 1) < _NO_DRIFT,
            f"{early:.3f} per second at first, {late:.3f} at last "
            f"({100 * (late / early - 1):+.2f} %)",
        )


def _rate(times: list[float], share: float) -> float:
    first = int(share * len(times))
    last = min(len(times) - 1, int((share + _TENTH) * len(times)))
    return (last - first) / (times[last] - times[first])


def _times(visits: Iterable[Visit]) -> dict[int, list[float]]:
    """Robots.txt is no page; its limits hold from then on. What the host has dropped,
    Twisted asks for once more by itself, at once."""
    times: dict[int, list[float]] = defaultdict(list)
    for visit in visits:
        if visit.page != ROBOTS and visit.status:
            times[visit.host].append(visit.at)
    return times


def _limits(plan: Plan, visits: Sequence[Visit]) -> Iterable[Check]:
    times = _times(visits)
    refused = Counter(v.host for v in visits if v.status == 429 and v.page != ROBOTS)
    groups: dict[str, list[int]] = defaultdict(list)
    for host in times:
        which = "steady" if host < STEADY else "visited"
        groups[f"{which}, {plan.kind(host)}"].append(host)
    for name, group in sorted(groups.items()):
        rate = plan.rate(group[0])
        asked = sum(len(times[host]) for host in group)
        most = max(_most_within(10.0, times[host]) for host in group)
        in_a_second = max(_most_within(1.0, times[host]) for host in group)
        share = 100 * sum(refused[host] for host in group) / asked
        is_bound = plan.limit(group[0]) is None
        yield Check(
            f"seen by {len(group)} hosts, {name}",
            not is_bound or most <= 10 * rate + 1,
            f"{asked} requests, {share:.2f} refused of 100; at most {in_a_second} in a "
            f"second and {most} in ten, where {rate} per second is the "
            f"{'bound' if is_bound else 'limit'}",
        )


def _most_within(seconds: float, times: list[float]) -> int:
    """Return the most that arrived in any time of that length."""
    most = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def _print_extremes(readings: list[dict[str, Any]]) -> None:
    """What there was of each kind: after the warm-up, at most and at last."""
    late = _after_warm_up(readings)
    for name in late[0] if late else ():
        if isinstance(late[0][name], int) and name != "done":
            counts = [reading[name] for reading in late]
            print(f"  {name}: {counts[0]}, at most {max(counts)}, at last {counts[-1]}")
    objects = [reading["objects"] for reading in late if "objects" in reading]
    if objects:
        first, last = objects[0], objects[-1]
        grown = {
            name: (first.get(name, 0), number)
            for name, number in last.items()
            if number > 1.1 * first.get(name, 0) + 20
        }
        print(f"  objects that have become more: {grown or 'none'}")
        kinds = [r["task_kinds"] for r in late if "task_kinds" in r]
        print(f"  tasks: {max(kinds, key=lambda kinds: sum(kinds.values()))}")


def _print_stats(crawl: Crawl) -> None:
    ours = ("politeness/", "retry/", "long_run/", "downloader/exception")
    for name, value in sorted(crawl.stats.items()):
        if name.startswith(ours) and "/slots/" not in name:
            print(f"  {name}: {value}")
