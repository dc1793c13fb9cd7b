"""All that a request needs permits of, to be had together or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.bandwidth import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_politeness.core.bandwidth import Bandwidth
    from scrapy_politeness.core.budget import Budget
    from scrapy_politeness.core.outcome import Permit
    from scrapy_politeness.core.slot import Slot


class Route(NamedTuple):
    """Beside the slot's own budget, ``shared`` are those that the queue knows of: of
    the whole crawl, of the server's address, of the host with several slots. ``unseen``
    are those that it does not: of the proxy, or of one of several hosts."""

    slot: Slot
    shared: tuple[Budget, ...] = ()
    unseen: tuple[Budget, ...] = ()

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return self.shared + self.unseen

    @property
    def metered(self) -> list[Bandwidth]:
        """All that count the bytes of an answer."""
        if not self.shared and not self.unseen:
            return [] if self.slot.bandwidth is None else [self.slot.bandwidth]
        sources: tuple[Slot | Budget, ...] = (self.slot, *self.shared, *self.unseen)
        return [each.bandwidth for each in sources if each.bandwidth is not None]

    @property
    def seen_ready_at(self) -> float:
        """From when on the queue would hand out a request."""
        if not self.shared:
            return self.slot.ready_at
        return max(self.slot.ready_at, *(budget.ready_at for budget in self.shared))

    @property
    def ready_at(self) -> float:
        if not self.unseen:
            return self.seen_ready_at if self.shared else self.slot.ready_at
        return max(self.seen_ready_at, *(b.unseen_ready_at for b in self.unseen))

    def may_go(self, now: float) -> bool:
        return self.ready_at <= now and self.is_open(now)

    def is_open(self, now: float) -> bool:
        """Tell whether one may go that is ready."""
        return self.has_room and not self.lacks_permit(now)

    @property
    def has_room(self) -> bool:
        if not self.shared and not self.unseen:
            return self.slot.has_room
        return self.slot.has_room and all(budget.has_room for budget in self.budgets)

    def lacks_permit(self, now: float) -> bool:
        """Tell whether budgets that other processes share have to be asked first, or
        the slot's turn has to come."""
        if self.slot.permits.leases is None and not self.unseen:
            return False
        return not self.slot.has_permit(now, self.shared) or any(
            not budget.has_permit(now) for budget in self.unseen
        )

    def waits_unseen(self, now: float) -> bool:
        return any(budget.unseen_ready_at > now for budget in self.unseen)

    def claim(self, claimant: object, now: float) -> None:
        """A request was handed out and is on its way to be sent."""
        self.slot.claim(now)
        for budget in self.shared:
            budget.claim(claimant, now)

    def unclaim(self, claimant: object) -> None:
        """That request was sent, or will never be."""
        for budget in self.shared:
            budget.unclaim(claimant)
        self.slot.unclaim()

    def step_aside(self, claimant: object) -> None:
        """That request waits for something that the queue does not know of."""
        for budget in self.shared:
            budget.unclaim(claimant)
        self.slot.step_aside()

    def join_line(self) -> None:
        """A request waits at the gate."""
        for budget in self.budgets:
            budget.waiting += 1

    def leave_line(self) -> None:
        if self.budgets:
            for budget in self.budgets:
                budget.waiting -= 1
            self.slot.announce()

    def take(self, now: float, kind: Callable[[], str] = str) -> Flight:
        """Let one request through, now; where bytes are counted, ``kind`` tells which
        answers are about as large as its own."""
        slot = self.slot
        permit = slot.take(now)
        is_alone = not self.shared and not self.unseen
        if is_alone and slot.bandwidth is None:
            return Flight(self, permit, ())
        metered = self.metered
        transfer = Transfer(metered, now, kind()) if metered else None
        if is_alone:
            return Flight(self, permit, (), transfer)
        shared = [budget.take(now) for budget in self.shared]
        shared += [budget.take_unseen(now) for budget in self.unseen]
        for budget in self.budgets:
            budget.in_flight += 1
        return Flight(self, permit, tuple(shared), transfer)


class Flight(NamedTuple):
    """A request that was sent; ``shared`` are its permits from ``route.budgets``.
    ``transfer`` is its answer, where bytes are counted."""

    route: Route
    permit: Permit
    shared: tuple[Permit, ...]
    transfer: Transfer | None = None

    def receive(self, size: int, now: float) -> None:
        """A part of the answer has arrived."""
        if self.transfer is not None:
            self.transfer.receive(size, now)
