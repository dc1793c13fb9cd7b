"""What a server's log says about a crawl."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

REFUSED = (429, 503)

# Seconds: what was under way when the server said so is nobody's fault.
_ON_ITS_WAY = 0.1


class Arrival(NamedTuple):
    """``retry_after`` is what the server asked for, in seconds."""

    at: float
    status: int
    path: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """``share`` is that of the fastest possible crawl: 1 for all pages in the shortest
    time. ``cpu`` are the seconds that the crawler computed."""

    pages: int
    wanted: int
    asked: int
    refused: int
    impatient: int
    gap: float | None
    share: float
    seconds: float
    cpu: float

    @property
    def refused_per_100(self) -> float:
        return 100 * self.refused / self.asked if self.asked else 0.0


def read_log(path: Path) -> list[Arrival]:
    """Each line: seconds, status, path, Retry-After or a dash."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    fields = (line.split() for line in lines)
    return [
        Arrival(float(at), int(status), url, float(wait) if wait != "-" else None)
        for at, status, url, wait in fields
    ]


def judge(
    arrivals: Iterable[Arrival], wanted: int, fastest: float, cpu: float
) -> Score:
    """``fastest`` is how long the fastest possible crawl of all pages takes."""
    log = sorted(a for a in arrivals if a.path.startswith("/page/"))
    served = [a for a in log if a.status == 200]
    pages = len({a.path for a in served})
    seconds = served[-1].at - log[0].at if served else 0.0
    gaps = [later.at - earlier.at for earlier, later in pairwise(log)]
    return Score(
        pages=pages,
        wanted=wanted,
        asked=len(log),
        refused=sum(a.status in REFUSED for a in log),
        impatient=_impatient(log),
        gap=min(gaps, default=None),
        share=pages / wanted * min(1.0, fastest / max(seconds, 1e-9)),
        seconds=seconds,
        cpu=cpu,
    )


def _impatient(log: list[Arrival]) -> int:
    """How many requests came while the server had asked for silence."""
    count, since, until = 0, 0.0, 0.0
    for arrival in log:
        count += since + _ON_ITS_WAY < arrival.at < until
        if arrival.retry_after:
            if arrival.at >= until:
                since = arrival.at
            until = max(until, arrival.at + arrival.retry_after)
    return count
