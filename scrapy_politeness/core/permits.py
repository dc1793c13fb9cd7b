"""Where the permits of a slot or a budget come from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from scrapy_politeness.core.leases import FURTHEST, Leases
from scrapy_politeness.core.pace import Pace
from scrapy_politeness.core.turns import Seat, Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_politeness.core.windows import Window


class Referable:
    """Makes room for weak references, which ``dataclass(slots=True)`` does not before
    Python 3.11."""

    __slots__ = ("__weakref__",)


class Pacing(Protocol):
    """When the next request may go. ``interval`` is the spacing to keep on average,
    ``floor`` one that no two requests may undercut; both may change at any time."""

    def ready_at(self, interval: float, floor: float = 0.0) -> float: ...

    def has_permit(self, now: float, shared: object = ()) -> bool:
        """Tell whether one more is paid for, with those ``shared`` budgets."""

    def claimable_at(
        self,
        claims: int,
        since: float,
        interval: float,
        floor: float = 0.0,
        way: float = 0.0,
    ) -> float:
        """From when on one more request may be handed out, to be sent at once, while
        ``claims`` are on their way; infinite until something was sent or granted."""

    def idle_at(self, interval: float, floor: float = 0.0) -> float:
        """From when on it is as if there had never been a request."""

    def take(self, now: float, interval: float, floor: float = 0.0) -> float:
        """Let one through; return for how long it could have gone already."""

    def restart(self, now: float) -> None:
        """Count the spacing from now, as if a request had just started."""

    def pause_until(self, until: float, interval: float) -> None: ...

    def forget_pause(self) -> None: ...


@dataclass(eq=False, slots=True)
class Permits:
    """A process on its own paces itself. One that has joined others sends by leases of
    what they share; parted from them, it paces itself again, with an equal share.

    Whichever it is, this knows when the last request was sent, and what the others
    count on: that nothing is sent without a lease before ``promised_until``, and only
    in the turns of ``seat`` after that.

    ``pace`` is what to ask, ``share`` what to multiply intervals by, and ``ask_at``
    from when on it is of use to ask for more leases of a budget.
    """

    burst: int = 1
    windows: Sequence[Window] = ()
    pace: Pacing = field(init=False)
    leases: Leases | None = None
    is_joined: bool = False
    share: int = 1
    ask_at: float = -math.inf
    seat: Seat | None = None
    # By how much the clock of the turns is ahead of ours, if that is known.
    turns_offset: float | None = None
    promised_until: float = -math.inf
    # When the others have last answered, and since when they have granted nothing.
    answered_at: float = -math.inf
    vain_since: float = math.inf
    # They may believe that more time has passed since then than has.
    is_doubtful: bool = False
    # From when on the next gap counts: the last request, or the end of it.
    last: float = -math.inf
    # The same, as long as the others do not know of it.
    uncounted: float | None = None
    # Where they were parted from this one, until when they have leases of before.
    _reserved_until: float = -math.inf

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

    def take(self, now: float, interval: float, floor: float) -> float:
        """Let one request through; return for how long it could have gone already."""
        late = self.pace.take(now, interval, floor)
        self.last = max(self.last, now)
        if not self.is_joined:
            self.uncounted = self.last
        return late

    def restart(self, now: float) -> None:
        """Count the spacing from now, as if a request had just started."""
        self.pace.restart(now)
        self.last = max(self.last, now)
        self.uncounted = self.last

    def counted(self, at: float | None) -> None:
        """The others know of what was sent until then."""
        if self.uncounted == at:
            self.uncounted = None

    def join(self, members: int = 1) -> None:
        """``members`` is how many processes there are, if that is known."""
        if self.leases is None:
            self.leases = Leases(members)
        self.leases.clear()
        # They may have forgotten what they have known, or use what they had reserved.
        last = max(self.last, self._reserved_until)
        self.uncounted = last if last > -math.inf else None
        # They could grant nothing meanwhile.
        self.vain_since = math.inf
        self.pace = self.leases
        self.is_joined = True
        self.share = 1
        self.ask_at = -math.inf

    def part(
        self, now: float, chance: float, interval: float, step: float, offset: float
    ) -> None:
        """``chance`` is a random number from [0, 1): the processes must not all begin
        at the same time. ``interval`` is what all of them together have kept, ``step``
        how long their turns are; ``offset`` is as in ``Turns``, where the others have
        not said what it is."""
        assert self.leases is not None
        self.share = max(1, self.leases.members, self.seat.of if self.seat else 1)
        self.is_joined = False
        self.ask_at = -math.inf
        windows = [window.shared(self.share) for window in self.windows]
        pace = Pace(max(1, self.burst // self.share), windows)
        self.pace = pace
        if self.share == 1:
            pace.restart(max(self.last, now - chance * interval))
            return
        reach = max(self.leases.reach, FURTHEST if step else 0.0)
        self._reserved_until = now + reach
        # As long as they count on it, they may reserve what would be this one's turn.
        quiet_until = max(now, self.promised_until) + reach
        if self.seat is None or not step:
            pace.restart(max(self.last, quiet_until - chance * interval * self.share))
            return
        pace.restart(self.last)
        if self.turns_offset is not None:
            offset = self.turns_offset
        self.pace = Turns(pace, self.seat, step, offset, quiet_until + step)
