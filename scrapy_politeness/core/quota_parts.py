"""Which part of a host a quota is for.

The rule: a quota is that of one part if all pages of the part state it, and pages
elsewhere state none or another one. As long as that is not known, it is the host's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_politeness.core.parts import Part

# At least this many pages elsewhere must have been answered without it.
_LEAST_ELSEWHERE = 5

# What more parts state is the host's quota, which some of its pages merely do not
# mention: those from a cache, for example.
_MOST_PARTS = 3

# Where there are as many names, they do not name quotas: all are the host's.
_MOST_NAMES = 20

# Parts that are remembered.
_MOST_COUNTED = 200


class QuotaParts:
    """Of one host. ``None`` is the name of no quota at all."""

    __slots__ = ("_silent", "_silent_pages", "_stated", "_total")

    def __init__(self) -> None:
        # How many pages of each part have stated a quota of each name.
        self._stated: dict[str, Counter[Part]] = {}
        self._total: Counter[str] = Counter()
        # Redirects and refusals are often sent by something in front of the host, so
        # that their silence says nothing.
        self._silent: Counter[Part] = Counter()
        self._silent_pages = 0

    def answered(
        self, parts: tuple[Part, ...], name: str | None, *, is_page: bool
    ) -> None:
        """``name`` is that of the quota stated, if any."""
        if name is None:
            if not is_page:
                _count(self._silent, parts)
                self._silent_pages += 1
        elif name in self._stated or len(self._stated) < _MOST_NAMES:
            _count(self._stated.setdefault(name, Counter()), parts)
            self._total[name] += 1

    def part_of(
        self,
        name: str,
        parts: tuple[Part, ...],
        answered: Mapping[Part, int],
        total: int,
    ) -> Part | None:
        """Return which of the parts that a page belongs to has the quota that the page
        states, or None where it is the host's. ``answered`` counts all pages by their
        parts."""
        stated: Counter[Part] = self._stated.get(name, Counter())
        if len(self._stated) >= _MOST_NAMES:
            return None
        if total - self._silent_pages - self._total[name] < _LEAST_ELSEWHERE:
            return None
        for part in parts:
            others = sum(each.kind == part.kind for each in stated if each != part)
            silent = answered.get(part, 0) - self._silent[part] - stated[part]
            if others < _MOST_PARTS and silent <= 0:
                return part
        return None


def _count(counter: Counter[Part], parts: tuple[Part, ...]) -> None:
    for part in parts:
        if part in counter or len(counter) < _MOST_COUNTED:
            counter[part] += 1
