"""Where the permits of a slot or a budget come from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_politeness.core.leases import Leases
from scrapy_politeness.core.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_politeness.core.windows import Window


class Referable:
    """Makes room for weak references, which ``dataclass(slots=True)`` does not before
    Python 3.11."""

    __slots__ = ("__weakref__",)


@dataclass(eq=False, slots=True)
class Permits:
    """A process on its own paces itself. One that has joined others sends by leases of
    what they share; parted from them, it paces itself again, with an equal share.

    ``pace`` is what to ask, ``share`` what to multiply intervals by, and ``ask_at``
    from when on it is of use to ask for more leases of a budget.
    """

    burst: int = 1
    windows: Sequence[Window] = ()
    pace: Pace | Leases = field(init=False)
    leases: Leases | None = None
    is_joined: bool = False
    share: int = 1
    ask_at: float = -math.inf

    def __post_init__(self) -> None:
        self.pace = Pace(self.burst, self.windows)

    @property
    def is_parted(self) -> bool:
        return self.leases is not None and not self.is_joined

    def limit(self, windows: Sequence[Window]) -> None:
        """From now on, keep to these windows instead; in those that are new, nothing
        was sent so far."""
        if tuple(windows) != tuple(self.windows):
            self.windows = windows
            shares = [window.shared(self.share) for window in windows]
            if isinstance(self.pace, Pace):
                self.pace.limit(shares)

    def join(self, members: int = 1) -> None:
        """``members`` is how many processes there are, if that is known."""
        if self.leases is None:
            self.leases = Leases(members)
        self.leases.clear()
        self.pace = self.leases
        self.is_joined = True
        self.share = 1
        self.ask_at = -math.inf

    def part(self, now: float, chance: float, interval: float) -> None:
        """``chance`` is a random number from [0, 1): the processes must not all begin
        at the same time. ``interval`` is what all of them together have kept."""
        assert self.leases is not None
        self.share = max(1, self.leases.members)
        self.is_joined = False
        self.ask_at = -math.inf
        windows = [window.shared(self.share) for window in self.windows]
        self.pace = Pace(self.burst, windows)
        self.pace.restart(now - chance * interval * self.share)
