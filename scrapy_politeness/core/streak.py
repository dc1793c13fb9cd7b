"""Failures in a row: bad luck, or a host that is down or has locked us out?

A connection that is refused or cut says nothing by itself: on the web, some are. What
tells is the row. Where the share q of all requests fails for no reason, n of them in a
row come by chance with probability q^n, and a row that is too unlikely is a block. The
share is learned from the rows that ended by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

# A host that was never seen to fail fails this share of requests, and that many
# requests would have to say otherwise.
_USUAL_SHARE = 0.03
_USUAL_REQUESTS = 20.0

# Rows less likely than this are no accident: four where failures are rare, and twelve
# where 30 % of the requests fail.
_NO_ACCIDENT = 1e-6

# Requests that are remembered, about.
_MEMORY = 1000.0

# From this share on, RETRY_TIMES would give up pages that can be had.
_NOISY = 0.05


@dataclass(slots=True, eq=False, repr=False)
class Streak:
    """Times are those at which requests were sent. ``was_block`` says that there was a
    block earlier. Of the ``requests`` before the present row, ``_failed`` failed."""

    requests: float = 0.0
    in_a_row: int = 0
    began_at: float = 0.0
    was_block: bool = False
    _failed: float = 0.0

    def __repr__(self) -> str:
        return f"<Streak of {self.in_a_row}, usual share {self.share:.3g}>"

    @property
    def share(self) -> float:
        """Of all requests, how many fail whatever we do."""
        failed = self._failed + _USUAL_SHARE * _USUAL_REQUESTS
        return failed / (self.requests + _USUAL_REQUESTS)

    @property
    def is_noisy(self) -> bool:
        return self.share >= _NOISY

    @property
    def is_block(self) -> bool:
        return self.is_block_with(0)

    def is_block_with(self, more: int) -> bool:
        """Tell whether the row is no accident once it is longer by that many."""
        return self.share ** (self.in_a_row + more) < _NO_ACCIDENT

    def failed(self, at: float) -> None:
        self.began_at = min(self.began_at, at) if self.in_a_row else at
        self.in_a_row += 1

    def served(self, at: float) -> None:
        if self.in_a_row and at < self.began_at:
            return  # it does not show that the row is over
        if self.is_block:
            self.was_block = True
        else:
            self._failed += self.in_a_row
            self.requests += self.in_a_row
        self.requests += 1
        self.in_a_row = 0
        if self.requests > _MEMORY:
            self.requests /= 2
            self._failed /= 2
