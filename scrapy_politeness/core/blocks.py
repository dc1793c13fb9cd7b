"""For what reasons a slot sends nothing, and until when."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scrapy_politeness.core.cause import Block


@dataclass(slots=True, eq=False)
class Blocks:
    """``until`` is when the last of those ends that stop requests at the gate.
    ``in_queue`` says that one keeps them in the queue: robots.txt is not known yet, and
    has to pass the gate itself."""

    _ends: dict[Block, float] = field(default_factory=dict)
    in_queue: bool = False
    until: float = -math.inf

    def end_of(self, reason: Block) -> float:
        """Return minus infinity where there is no such block."""
        return self._ends.get(reason, -math.inf)

    @property
    def longest(self) -> Block:
        at_gate = (reason for reason in self._ends if reason is not Block.ROBOTS)
        return max(at_gate, key=self._ends.__getitem__)

    def add(self, reason: Block, until: float) -> bool:
        """Of several times for one reason, the latest counts. Return whether it is
        this one."""
        if until <= self.end_of(reason):
            return False
        self._ends[reason] = until
        self._update()
        return True

    def remove(self, reason: Block) -> bool:
        """Return whether there was such a block."""
        was_there = self._ends.pop(reason, None) is not None
        self._update()
        return was_there

    def clear(self) -> None:
        """End all of those at the gate."""
        for reason in set(self._ends) - {Block.ROBOTS}:
            del self._ends[reason]
        self.until = -math.inf

    def _update(self) -> None:
        self.in_queue = Block.ROBOTS in self._ends
        at_gate = (at for why, at in self._ends.items() if why is not Block.ROBOTS)
        self.until = max(at_gate, default=-math.inf)
