"""What goes wrong with requests to the demo wiki: the same in every run."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal

from irowiki.demo_wiki.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["maxlag", "ratelimited", "readonly", "429", "503", "broken", "slow"]

LAG = 7.3


@dataclass(frozen=True)
class Reply:
    body: bytes
    content_type: str = "text/plain"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """Affects ``requests`` in a row, or all requests for ``seconds``."""

    kind: Kind
    requests: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class FaultPlan:
    """``faults`` are keyed by the number of the request that they begin with.
    ``errors`` is the share of requests that get a 503 at random. ``broken`` maps the
    parameter that asks for a page to the number of 503s before it is served. Each
    response takes its own time, around ``latency`` seconds."""

    faults: Mapping[int, Fault] = field(default_factory=dict)
    errors: float = 0.0
    broken: Mapping[str, int] = field(default_factory=dict)
    latency: float = 0.0
    seed: int = 0


NO_FAULTS = FaultPlan()

# For a crawl of about seventy requests. The first ones go well, so that the rate can
# rise to the wiki's own limit. The lag is over before the five seconds that MediaWiki
# asks a client to wait, so that one wait is enough.
DEMO_FAULTS = FaultPlan(
    faults={
        36: Fault("ratelimited"),
        46: Fault("maxlag", seconds=4.0),
        54: Fault("slow", requests=3),
    },
    # With this seed, one of the requests that the spider sends is among them.
    errors=0.01,
    seed=76,
    broken={"pageids=4": 2},
    latency=0.06,
)

# Seconds that a slow response takes, and any other at most.
SLOW = 0.7
_MOST = 0.5

# Of the logarithm of the latency: one response in six takes more than twice the usual.
_SPREAD = 0.7


class Faults:
    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._fault: Fault | None = None
        self._ends_at = 0.0
        self._left = 0
        self._asked: Counter[str] = Counter()
        self.requests = 0

    def next(self, target: str) -> Kind | None:
        """Return what goes wrong with the next request."""
        self.requests += 1
        now = time.monotonic()
        if fault := self._plan.faults.get(self.requests):
            self._fault = fault
            self._left = fault.requests
            self._ends_at = now + fault.seconds
        if self._fault is None or (self._left <= 0 and now >= self._ends_at):
            return self._bad_luck(target)
        self._left -= 1
        return self._fault.kind

    def latency(self, target: str) -> float:
        median = self._plan.latency
        spread = Random(target).lognormvariate(0.0, _SPREAD)
        return min(median * spread, _MOST)

    def _bad_luck(self, target: str) -> Kind | None:
        self._asked[target] += 1
        nth = self._asked[target]
        parts = target.partition("?")[2].split("&")
        if any(nth <= self._plan.broken.get(part, 0) for part in parts):
            return "broken"
        luck = Random(f"{self._plan.seed} {target} {nth}").random()
        return "503" if luck < self._plan.errors else None


def refusal(kind: Kind) -> Reply:
    if kind == "429":
        return Reply(b"Too many requests.\n", status=429)
    if kind in ("503", "broken"):
        return Reply(b"Service unavailable.\n", status=503)
    # MediaWiki says the rest with HTTP 200.
    if kind == "ratelimited":
        info = "You've exceeded your rate limit. Please wait some time and try again."
        return api_error(ApiError(kind, info))
    if kind == "readonly":
        return api_error(ApiError(kind, "The wiki is currently in read-only mode."))
    lagged = ApiError(
        "maxlag",
        f"Waiting for a database server: {LAG} seconds lagged.",
        host="demo",
        lag=LAG,
        type="db",
    )
    return api_error(lagged, {"Retry-After": "5", "X-Database-Lag": str(int(LAG))})


def too_many(wait: int) -> Reply:
    headers = {"Retry-After": str(wait)}
    return Reply(b"Too many requests.\n", status=429, headers=headers)


def api_error(error: ApiError, headers: Mapping[str, str] | None = None) -> Reply:
    return in_json(error.body, {"MediaWiki-API-Error": error.code, **(headers or {})})


def in_json(body: object, headers: Mapping[str, str] | None = None) -> Reply:
    text = json.dumps(body, ensure_ascii=False)
    return Reply(text.encode(), "application/json", headers=headers or {})
