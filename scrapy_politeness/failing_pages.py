"""Pages that are refused again and again while others of their host are served."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy_politeness.core.failing import Failures, Persistence
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.observe.names import public_request
from scrapy_politeness.observe.text import duration
from scrapy_politeness.placement import Placement, Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.outcome import Outcome
    from scrapy_politeness.core.scope import Scope
    from scrapy_politeness.engine import Engine
    from scrapy_politeness.layers import Layers

logger = logging.getLogger(__name__)

# Plain data, which travels with the request through any queue.
_FAILURES = "_politeness_failures"


class FailingPages:
    """``has_work`` tells whether anything waits for a slot that may go as soon as it is
    ready."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine,
        layers: Layers,
        has_work: Callable[[Scope], bool],
        crawler: Crawler,
    ) -> None:
        bounds = policy.bounds
        self._persistence = Persistence(bounds.backoff_base, bounds.backoff_max)
        self._engine = engine
        self._layers = layers
        self._has_work = has_work
        self._crawler = crawler
        self._log = logging.LoggerAdapter(logger, {"spider": crawler.spider})
        self._refused: WeakKeyDictionary[Request, _Refusal] = WeakKeyDictionary()

    def refused(self, request: Request, status: int, outcome: Outcome) -> Outcome:
        """A request was refused, and its slot has not learned of it yet. Return what
        that tells about the host."""
        scope = self._layers.slot_for(request)
        if scope is None:
            return outcome
        wall_now = time.time()
        before = self._failures_of(request)
        speaks_of_rate = _speaks_of_rate(status, outcome)
        if before is None:
            refusal = _Refusal(Failures(wall_now), outcome.reason, is_first=True)
        else:
            served_at = _served_at(scope, wall_now)
            failures = before.refused(
                wall_now,
                others_served=served_at > before.refused_at,
                alone=self._is_alone(request, scope),
                suspect=served_at > -math.inf and not speaks_of_rate,
            )
            refusal = _Refusal(failures, outcome.reason)
        self._refused[request] = refusal
        if refusal.failures.spares_host(speaks_of_rate=speaks_of_rate):
            return replace(outcome, verdict=Verdict.FAILED)
        return outcome

    def placement(self, request: Request, scope: Scope) -> Placement | None:
        """Return where a request that was refused is to wait; None if it is given up
        because it is the page that fails."""
        refusal = self._refusal_of(request)
        failures = refusal.failures
        alone = self._is_alone(request, scope)
        now, noise = failures.refused_at, scope.noise
        at = self._persistence.next_try(failures, now, alone=alone, noise=noise)
        if at == math.inf:
            self._warn(request, refusal)
            return None
        until = max(scope.paused_until, scope.held_until)
        silence = max(0.0, until - time.monotonic())
        if at > now:
            # Others have to be asked for in between, or nothing is learned.
            gap = at - now if alone else at - now + silence
            # The last try need not be waited for where nothing else is.
            early = self._persistence.gives_up(failures, alone=True, noise=noise)
            self._log.debug(
                "%(request)s fails (%(reason)s): next try in %(gap).3g s",
                {
                    "request": public_request(request),
                    "reason": refusal.reason,
                    "gap": gap,
                },
            )
            return Placement(Where.HELD, gap, early=early, failing=True)
        # With the highest priority, a page that was refused would be the next to go,
        # and nobody would ever know whether others are served.
        where = Where.BEHIND if refusal.is_first else Where.LAST
        seconds = silence + self._persistence.behind
        return Placement(where, seconds, failing=failures.times > 0)

    def remember(self, request: Request, copy: Request) -> None:
        """The copy is going to be asked for in the place of the request."""
        failures = self._refusal_of(request).failures
        copy.meta[_FAILURES] = [
            self._identity(request),
            failures.refused_at,
            failures.times,
            failures.since,
            failures.witnessed,
        ]

    @staticmethod
    def forget(request: Request) -> None:
        """It was served."""
        request.meta.pop(_FAILURES, None)

    def _refusal_of(self, request: Request) -> _Refusal:
        found = self._refused.get(request)
        if found is None:  # it had no slot then
            found = _Refusal(Failures(time.time()), "", is_first=True)
        return found

    def _is_alone(self, request: Request, scope: Scope) -> bool:
        """Tell whether its slot has nothing else to do but failing pages."""
        if self._has_work(scope):
            return False
        return all(
            other is request
            or _is_failing(other)
            or self._layers.key_for(other) != scope.key
            for other in self._engine.in_progress()
        )

    def _failures_of(self, request: Request) -> Failures | None:
        mark = request.meta.get(_FAILURES)
        if mark is None:
            return None
        # A spider may hand ``response.meta`` on to another request.
        identity, *known = mark
        return Failures(*known) if identity == self._identity(request) else None

    def _identity(self, request: Request) -> str:
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        return fingerprinter.fingerprint(request).hex()

    def _warn(self, request: Request, refusal: _Refusal) -> None:
        self._log.warning(
            "%(request)s fails while other pages of its host %(are)s served "
            "(%(reason)s, %(times)d times in %(span)s): passing the failure on",
            {
                "request": public_request(request),
                "are": "are" if refusal.failures.witnessed else "were",
                "reason": refusal.reason,
                "times": refusal.failures.times,
                "span": duration(refusal.failures.seconds),
            },
        )


class _Refusal:
    def __init__(
        self, failures: Failures, reason: str, *, is_first: bool = False
    ) -> None:
        self.failures = failures
        self.reason = reason
        self.is_first = is_first


def _is_failing(request: Request) -> bool:
    mark = request.meta.get(_FAILURES)
    return mark is not None and mark[2] > 0


def _speaks_of_rate(status: int, outcome: Outcome) -> bool:
    is_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return not is_error or outcome.wait is not None or outcome.quota is not None


def _served_at(scope: Scope, wall_now: float) -> float:
    """By the wall clock, when the last request was sent that was served."""
    return wall_now - (time.monotonic() - scope.served_sent_at)
