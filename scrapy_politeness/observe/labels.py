"""Counts under a bounded number of labels, none of which ever decreases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.census import SlotView
from scrapy_politeness.observe.figures import COUNTS
from scrapy_politeness.observe.tally import Tally

if TYPE_CHECKING:
    from scrapy_politeness.observe.census import Census

# How many slots get a label of their own in one crawl, which they keep.
MOST_LABELS = 50
OTHER = "other"

# Where there are more slots, only those with some traffic or trouble get one.
_FEWEST_SENT = 10

Counts = dict[str, float]


@dataclass(frozen=True)
class Account:
    """``counts`` are what to expose, ``view`` is for all that is not counted."""

    label: str
    counts: Counts
    view: SlotView


class Ledger:
    """What was counted for a slot before it had a label stays with the others; what was
    counted under a label that starts again is never added to them."""

    def __init__(self, most: int = MOST_LABELS) -> None:
        self._most = most
        self._labels: dict[str, str] = {}
        self._taken = {OTHER}
        self._before: dict[str, Counts] = {}
        self._told: dict[str, Counts] = {}
        self._lost = _nothing()

    def accounts(self, census: Census) -> list[Account]:
        views = {view.key: view for view in census.slots}
        crowded = len(census.slots) + census.others > self._most
        for view in census.slots:
            if len(self._labels) >= self._most:
                break
            if view.key not in self._labels and (not crowded or _is_worth_it(view)):
                self._admit(view, new=not crowded)
        accounts = [self._account(views.get(slot), slot) for slot in self._labels]
        return [*accounts, self._others(census, accounts)]

    def _admit(self, view: SlotView, *, new: bool) -> None:
        label = name = printable(view.key)
        number = 1
        while label in self._taken:  # names that look the same, or like ours
            number += 1
            label = f"{name} ({number})"
        self._taken.add(label)
        self._labels[view.key] = label
        self._before[view.key] = _nothing() if new else _counts(view.tally)
        self._told[view.key] = _nothing()

    def _account(self, view: SlotView | None, slot_key: str) -> Account:
        label, told = self._labels[slot_key], self._told[slot_key]
        if view is None:  # no longer tallied, so nothing is sent to it
            return Account(label, told, SlotView(slot_key, None, 0, Tally()))
        counts = _minus(_counts(view.tally), self._before[slot_key])
        if any(counts[name] < told[name] for name in COUNTS):
            # Its tally started again, and the old one is now part of the others.
            self._lost = _plus(self._lost, told)
            self._before[slot_key] = _nothing()
            counts = _counts(view.tally)
        self._told[slot_key] = counts
        return Account(label, counts, view)

    def _others(self, census: Census, accounts: list[Account]) -> Account:
        counts = _minus(_counts(census.total), self._lost)
        for account in accounts:
            counts = _minus(counts, account.counts)
        pending = census.pending - sum(account.view.pending for account in accounts)
        # Sums of floats differ in the last digits.
        counts = {name: max(0.0, value) for name, value in counts.items()}
        return Account(OTHER, counts, SlotView(OTHER, None, max(0, pending), Tally()))


def _is_worth_it(view: SlotView) -> bool:
    tally, status = view.tally, view.status
    trouble = tally.refused + tally.timed_out + tally.failed
    silent = status is not None and status.paused_for > 0
    return tally.sent >= _FEWEST_SENT or trouble > 0 or silent


def _counts(tally: Tally) -> Counts:
    return {name: float(getattr(tally, name)) for name in COUNTS}


def _nothing() -> Counts:
    return dict.fromkeys(COUNTS, 0.0)


def _plus(counts: Counts, others: Counts) -> Counts:
    return {name: value + others[name] for name, value in counts.items()}


def _minus(counts: Counts, others: Counts) -> Counts:
    return {name: value - others[name] for name, value in counts.items()}
