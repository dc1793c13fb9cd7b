"""What the long run visits: its hosts, their pages, their limits and their faults."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

# These are visited from the first second to the last, so that a drift of their rates
# would show; the others one after the other, a few at once.
STEADY = 20
STEADY_SHARE = 0.4
STEADY_RATE = 4
AT_ONCE = 45

MAX_RATE = 5
VISITED_LIMIT = 3
TIMEOUT = 5

# Pages of a host that always refuses: each costs some twenty attempts.
DEAD_PAGES = 2

ROBOTS = 0xFFFFFFFF
"""The number of robots.txt among the pages, in the site's log."""

# Of a thousand pages so many fail like this, when they are first asked for.
_PAGE_FAULTS = {
    "429 for 1 s": 8,
    "429": 3,
    "503 until a date": 3,
    "reset": 4,
    "close": 4,
    "cut off": 2,
    "no answer": 1,
    "slow": 10,
    "redirect": 15,
}
# And of a thousand robots.txt files, when they are asked for at all; the rest is
# half and half there and not there.
_ROBOTS_FAULTS = {
    "429": 20,
    "503": 30,
    "reset": 20,
    "close": 20,
    "no answer": 5,
    "delay": 30,
}

STEADY_KINDS = (
    "told limit",
    "silent limit",
    "own limit",
    "Crawl-delay",
    "own max_rate",
)
"""What holds a steady host's rate: its refusals, with and without Retry-After, the
user's fixed limit, its robots.txt, or the user's bound of the learned rate."""


@dataclass(frozen=True)
class Plan:
    requests: int
    hosts: int

    @property
    def steady_pages(self) -> int:
        return int(self.requests * STEADY_SHARE) // STEADY

    @property
    def visited_pages(self) -> int:
        left = self.requests - STEADY * self.steady_pages
        return left // (self.hosts - STEADY)

    def pages(self, host: int) -> int:
        if host < STEADY:
            return self.steady_pages
        return DEAD_PAGES if self.is_dead(host) else self.visited_pages

    @property
    def pages_in_all(self) -> int:
        return sum(map(self.pages, range(self.hosts)))

    def kind(self, host: int) -> str:
        if host < STEADY:
            return STEADY_KINDS[host % len(STEADY_KINDS)]
        if self.is_dead(host):
            return "dead"
        tenth = host % 10
        if tenth < 3:
            return "silent limit"
        return "told limit" if tenth == 3 else "free"

    def limit(self, host: int) -> int | None:
        """How many requests per second the host itself accepts."""
        if self.kind(host) not in ("told limit", "silent limit"):
            return None
        return STEADY_RATE if host < STEADY else VISITED_LIMIT

    @staticmethod
    def is_dead(host: int) -> bool:
        return host % 400 == 399

    def page_fault(self, host: int, page: int) -> str | None:
        return None if host < STEADY else _drawn(_PAGE_FAULTS, f"{host}/{page}")

    def robots_fault(self, host: int) -> str | None:
        if host < STEADY:
            return "delay" if self.kind(host) == "Crawl-delay" else None
        return _drawn(_ROBOTS_FAULTS, f"{host}/robots.txt")

    def other_host(self, host: int) -> int:
        """Return where a page of this host may have moved to."""
        other = STEADY + (host * 7 + 1) % (self.hosts - STEADY)
        return other - 1 if self.is_dead(other) else other

    def rate(self, host: int) -> int:
        """Return the highest rate that a host may be asked at."""
        return STEADY_RATE if host < STEADY else self.limit(host) or MAX_RATE

    def limits(self) -> dict[str, dict[str, Any]]:
        """The user's own, for POLITENESS_LIMITS."""
        own: dict[str, dict[str, Any]] = {
            "own limit": {"limit": f"{STEADY_RATE}/s", "adaptive": False},
            "own max_rate": {"max_rate": STEADY_RATE},
        }
        kinds = {address(host): self.kind(host) for host in range(STEADY)}
        return {host: own[kind] for host, kind in kinds.items() if kind in own}


def _drawn(faults: dict[str, int], name: str) -> str | None:
    drawn = zlib.crc32(name.encode()) % 1000
    for fault, number in faults.items():
        drawn -= number
        if drawn < 0:
            return fault
    return None


def address(host: int) -> str:
    return f"127.{1 + host // 62500}.{host // 250 % 250}.{1 + host % 250}"
