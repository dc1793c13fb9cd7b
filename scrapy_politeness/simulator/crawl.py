"""A crawl of a number of pages: each is fetched once, and retried if it failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from scrapy_politeness.core.failing_page import Failures, Persistence
from scrapy_politeness.core.outcome import TOO_MANY_REQUESTS, Outcome, Verdict

# The default of POLITENESS_MAX_RESCHEDULES.
_MOST_RESCHEDULES = 20

# The default of RETRY_TIMES, for connections that are cut.
_RETRY_TIMES = 2


@dataclass(frozen=True, slots=True)
class GivenUpPage:
    """After ``tries`` attempts within ``seconds``."""

    page: int
    tries: int
    seconds: float


@dataclass(slots=True)
class _Failing:
    failures: Failures
    first_at: float
    tries: int = 1
    # Of these, connections that were cut; and those that RETRY_TIMES has paid for.
    cut: int = 0
    retries: int = 0
    was_cut: bool = False

    @property
    def is_known(self) -> bool:
        """It is the page that fails, and not the host."""
        return self.failures.times > 0


class Crawl:
    """Pages are numbered from 0 and requested in that order. One that has failed goes
    behind the others, or is retried after its delay; but not right after a failure,
    or a few of them would be all that is requested after each pause."""

    def __init__(self, pages: int, persistence: Persistence) -> None:
        self.pages = pages
        self.served = 0
        self.given_up: list[GivenUpPage] = []
        self._persistence = persistence
        self._next = 0
        self._failing: dict[int, _Failing] = {}
        # Pages with the time until which they stay behind the others, and those that
        # must wait until that time in any case.
        self._behind: list[tuple[float, int]] = []
        self._held: list[tuple[float, int]] = []
        # Pages that are neither done nor known to fail.
        self._others = pages
        self._served_sent_at = -math.inf
        self._has_just_failed = False

    def __repr__(self) -> str:
        return (
            f"<Crawl of {self.pages} pages: {self.served} served, "
            f"{len(self._failing)} failing, {len(self.given_up)} given up>"
        )

    @property
    def is_over(self) -> bool:
        return self.served + len(self.given_up) == self.pages

    @property
    def ready_at(self) -> float:
        """When there is a page to request; infinite if all are in flight."""
        if self._next < self.pages or self._behind:
            return -math.inf
        return self._held[0][0] if self._held else math.inf

    def take(self, now: float) -> int:
        untried = self._next < self.pages
        if not (untried and self._has_just_failed):
            for waiting in (self._held, self._behind):
                if waiting and waiting[0][0] <= now:
                    return heappop(waiting)[1]
        if untried:
            self._next += 1
            return self._next - 1
        return heappop(self._behind)[1]

    def known(self, page: int, outcome: Outcome) -> Outcome:
        """Add what is known of the page."""
        if page in self._failing and outcome.verdict.may_be_block:
            return outcome._replace(is_repeated=True)
        return outcome

    def settle(
        self, page: int, outcome: Outcome, sent_at: float, now: float
    ) -> Outcome:
        """Return the outcome as it counts for the host."""
        failing = self._failing.get(page)
        was_known = failing is not None and failing.is_known
        self._has_just_failed = outcome.verdict is not Verdict.SERVED
        if outcome.verdict is Verdict.SERVED:
            self._served_sent_at = max(self._served_sent_at, sent_at)
            self.served += 1
            self._failing.pop(page, None)
            self._others -= not was_known
        elif outcome.is_block or outcome.verdict is Verdict.UNREACHABLE:
            if failing is None:
                failing = self._failing[page] = _Failing(Failures(now), now, 0)
            failing.tries += 1
            failing.was_cut = not outcome.is_block
        else:
            failing = self._failed(page, failing, now)
            self._others -= failing.is_known and not was_known
            if outcome.verdict.is_overload and failing.failures.spares_host(
                speaks_of_rate=_speaks_of_rate(outcome)
            ):
                outcome = outcome._replace(verdict=Verdict.FAILED)
        if not self._others and not was_known:
            self._hurry(now)
        return outcome

    def put_back(
        self,
        page: int,
        now: float,
        pause: float,
        *,
        most_cuts: int = 0,
        is_noisy: bool = False,
        noise: float = 0.0,
    ) -> None:
        """Retry a page that has failed, or give it up. Nothing will be sent during the
        ``pause``. ``most_cuts`` is how often a page is rescheduled because its
        connection was cut, ``is_noisy`` whether that happens to many. ``noise`` is the
        share of requests that are known to fail whatever the page."""
        failing = self._failing[page]
        if failing.was_cut:
            self._retry(page, failing, now, most_cuts, is_noisy=is_noisy)
            return
        alone = not self._others
        at = self._persistence.next_try(failing.failures, now, alone=alone, noise=noise)
        if at == math.inf or failing.tries > _MOST_RESCHEDULES:
            self._give_up(page, failing, now)
        elif at > now:
            heappush(self._held, (at, page))
        else:
            # Others have to go first after the pause, to see whether they are served.
            until = now + pause + self._persistence.behind
            heappush(self._behind, (until, page))

    def _retry(
        self,
        page: int,
        failing: _Failing,
        now: float,
        most_cuts: int,
        *,
        is_noisy: bool,
    ) -> None:
        """As Scrapy does, behind all others, where it is not rescheduled."""
        failing.cut += 1
        failing.was_cut = False
        is_rescheduled = failing.cut <= most_cuts
        failing.retries += not is_rescheduled
        if failing.retries > _RETRY_TIMES:
            self._give_up(page, failing, now)
        elif is_rescheduled and failing.cut > 1 and not is_noisy:
            heappush(self._held, (now + self._persistence.gap(failing.cut - 1), page))
        else:
            heappush(self._behind, (math.inf, page))

    def _give_up(self, page: int, failing: _Failing, now: float) -> None:
        del self._failing[page]
        self._others -= not failing.is_known
        seconds = now - failing.first_at
        self.given_up.append(GivenUpPage(page, failing.tries, seconds))

    def _failed(self, page: int, failing: _Failing | None, now: float) -> _Failing:
        if failing is None:
            failing = self._failing[page] = _Failing(Failures(now), now)
            return failing
        failing.failures = failing.failures.refused(
            now,
            others_served=self._served_sent_at > failing.failures.refused_at,
            alone=not self._others,
        )
        failing.tries += 1
        return failing

    def _hurry(self, now: float) -> None:
        """Nothing else is left: do not wait for those that are given up if they fail
        once more."""
        for n, (_, page) in enumerate(self._held):
            failures = self._failing[page].failures
            if self._persistence.gives_up(failures, alone=True):
                self._held[n] = (now, page)
        heapify(self._held)


def _speaks_of_rate(outcome: Outcome) -> bool:
    """As a crawl has it: a bare 5xx may be the page's."""
    is_bare = outcome.wait is None and outcome.quota is None
    is_named = outcome.reason.startswith(TOO_MANY_REQUESTS)
    return outcome.verdict is Verdict.TIMED_OUT or is_named or not is_bare
