"""What befalls requests to the demo wiki: by their number, the same in every run."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from irowiki.demo_wiki.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["maxlag", "ratelimited", "readonly", "429", "slow"]

LAG = 7.3


@dataclass(frozen=True)
class Reply:
    body: bytes
    content_type: str = "text/plain"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Spell:
    """So many requests in a row; or, ``seconds`` long, all that come."""

    kind: Kind
    requests: int = 1
    seconds: float = 0.0


# For a crawl of about seventy requests. It begins in fine weather, so that the rate
# can rise into the wiki's own limit. The lag ends before the five seconds are over
# that MediaWiki asks a client to wait, so that one wait is enough.
STORMY: Mapping[int, Spell] = {
    40: Spell("maxlag", seconds=4.0),
    46: Spell("slow", requests=3),
    51: Spell("429"),
    57: Spell("ratelimited"),
}
CALM: Mapping[int, Spell] = {}

# Seconds that an answer takes in a slow spell.
SLOW = 0.7


class Weather:
    def __init__(self, spells: Mapping[int, Spell]) -> None:
        self._spells = spells
        self._spell: Spell | None = None
        self._ends_at = 0.0
        self._left = 0
        self.requests = 0

    def next(self) -> Kind | None:
        """Return what happens to the next request."""
        self.requests += 1
        now = time.monotonic()
        if spell := self._spells.get(self.requests):
            self._spell = spell
            self._left = spell.requests
            self._ends_at = now + spell.seconds
        if self._spell is None or (self._left <= 0 and now >= self._ends_at):
            return None
        self._left -= 1
        return self._spell.kind


def refusal(kind: Kind) -> Reply:
    if kind == "429":
        return Reply(b"Too many requests.\n", status=429)
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
