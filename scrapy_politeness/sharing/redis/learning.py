"""What several processes have learned together of each host."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from scrapy_politeness.core.leases import HORIZON
from scrapy_politeness.core.snapshot import freeze
from scrapy_politeness.sharing.redis.connection import Call, micros
from scrapy_politeness.sharing.redis.stored_models import StoredModels, text_of

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.governor.host_model import Change, HostModel
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.redis.keys import BudgetKeys
    from scrapy_politeness.sharing.redis.replies import Saved
    from scrapy_politeness.sharing.redis.server_clock import ServerClock

# Seconds. Details are worth something for this long; after that, only a summary with
# the limit that was found. Most hosts of a broad crawl are visited once, and nothing is
# found.
_DETAILS_KEPT = 600
_LITTLE_KEPT = 60
_SUMMARY_KEPT = 7 * 86400

# Seconds between reports of what was served; what was refused is reported at once.
# Where several processes report, one that does not know the latest report of the others
# reports in vain: so it waits until it has heard from the server, up to this long. If
# that takes longer, and one request goes at a time, it reports at once, before the next
# process does.
_REPORT_EVERY = 0.1
_LONGEST_WAIT = 5.0

_TRY_AGAIN = 0.01

# Revisions: not known yet, and to be overwritten whatever it is.
_UNKNOWN = -1
_OVERRIDE = -2


class Observation(NamedTuple):
    """A request is over; see ``HostModel.observe``. Times are local."""

    permit: Permit
    outcome: Outcome
    at: float
    chance: float
    otherwise: float


@dataclass(slots=True)
class _Copy:
    """Up to which revision this process knows a slot's shared model, what it has to
    add, and what is on its way to the server."""

    revision: int = _UNKNOWN
    # How often the slot was reset, by any process.
    resets: int | None = None
    reports: list[Observation] = field(default_factory=list)
    sent: list[Observation] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    # There is something to save, although nothing to report.
    is_new: bool = False
    is_on_its_way: bool = False


class SharedLearning:
    """One model of each host for all processes: one that has something to report takes
    the model as the last one has saved it, lets it observe, and saves it. If another
    process was faster, that is repeated with what the other has saved."""

    def __init__(
        self,
        keys_of: Callable[[Slot], BudgetKeys],
        clock: ServerClock,
        policy: Policy,
        log: logging.LoggerAdapter[Any],
    ) -> None:
        self._keys_of = keys_of
        self._clock = clock
        self._longest = policy.longest_pause
        self._stored = StoredModels(clock, log)
        self._copies: WeakKeyDictionary[Slot, _Copy] = WeakKeyDictionary()
        self._unsaved: dict[Slot, _Copy] = {}
        # Those that were reset while the server was away.
        self._reset: WeakSet[Slot] = WeakSet()
        # When there will be something to save.
        self.due_at = math.inf

    def add(self, slot: Slot, report: Observation) -> None:
        self._copy(slot).reports.append(report)
        hurry = report.outcome.verdict.calls_for_pause
        leases = slot.permits.leases
        wait = _REPORT_EVERY
        if leases is not None and leases.members > 1:
            hears_late = leases.ask_at > report.at + _LONGEST_WAIT
            is_single = slot.terms.slowest >= HORIZON
            wait = 0.0 if hears_late and is_single else _LONGEST_WAIT
        self._plan(slot, report.at if hurry else report.at + wait)

    def forget(self, slot: Slot) -> None:
        """What is on its way to the server is out of date as well."""
        copy = self._copies[slot] = _Copy(_OVERRIDE, self._copy(slot).resets)
        self._seed(slot, copy)

    def was_reset(self, slot: Slot, resets: int) -> bool:
        """Return whether another process has reset the slot."""
        copy = self._copy(slot)
        if copy.revision == _OVERRIDE:
            return False
        known, copy.resets = copy.resets, resets
        return known is not None and resets > known

    def reconnected(self) -> None:
        """The server may have forgotten something, or everything."""
        for copy in self._copies.values():
            if copy.revision != _OVERRIDE:
                copy.revision = _UNKNOWN
        while self._reset:
            slot = self._reset.pop()
            self._seed(slot, self._copy(slot))

    def left(self) -> Iterator[tuple[Slot, list[Observation]]]:
        """Give back what could not be saved."""
        unsaved, self._unsaved = self._unsaved, {}
        self.due_at = math.inf
        for slot, copy in unsaved.items():
            reports = copy.sent + copy.reports
            is_reset = copy.revision == _OVERRIDE
            self._copies[slot] = _Copy(_OVERRIDE if is_reset else _UNKNOWN, copy.resets)
            if is_reset:
                self._reset.add(slot)
            yield slot, reports

    @property
    def has_unsaved(self) -> bool:
        return bool(self._unsaved)

    def calls(
        self, now: float, *, is_last: bool = False
    ) -> list[tuple[Slot, _Copy, Call]]:
        """Return what is due, or all that there is if it ``is_last``."""
        if now < self.due_at and not is_last:
            return []
        self.due_at = math.inf
        return [
            (slot, copy, self._call(slot, copy, now))
            for slot, copy in self._unsaved.items()
            if not copy.is_on_its_way
        ]

    def resets_of(self, slot: Slot) -> int:
        return self._copy(slot).resets or 0

    def revision_of(self, slot: Slot) -> int:
        """Return which one will be known when all is saved that is on its way."""
        copy = self._copy(slot)
        return copy.revision + copy.is_on_its_way

    def answered(
        self, slot: Slot, copy: _Copy, answer: Saved, now: float
    ) -> list[tuple[Observation, Change]]:
        """Return what has come of the reports that were saved."""
        _, revision, is_saved, text, resets = answer
        if copy is not self._copies.get(slot):
            # Reset meanwhile: this was not to be saved any more, but it has happened.
            # Its pause is over.
            changes = [change._replace(pause=0.0) for change in copy.changes]
            return list(zip(copy.sent, changes, strict=True))
        copy.revision = revision
        copy.is_on_its_way = False
        if is_saved or copy.resets is None:
            copy.resets = resets
        if not is_saved and revision:
            # Another process was faster. They must not all try again at the same time:
            # where the server is far away, one is in vain for a long time.
            copy.reports = copy.sent + copy.reports
            copy.sent, copy.changes = [], []
            self._adopt(slot, copy, text)
            leases = slot.permits.leases
            assert leases is not None
            is_urgent = leases.is_blocked
            longest = 0.0 if is_urgent else leases.members * leases.lead
            self._plan(slot, now + random.uniform(0, _TRY_AGAIN + longest))
            return []
        done = list(zip(copy.sent, copy.changes, strict=True))
        copy.sent, copy.changes, copy.is_new = [], [], False
        if not is_saved:  # the server has forgotten all
            self._seed(slot, copy)
        elif not copy.reports:
            self._unsaved.pop(slot, None)
        else:
            self._plan(slot, now + _REPORT_EVERY)
        assert slot.permits.leases is not None
        refused = (report.outcome.verdict.is_overload for report in copy.reports)
        slot.permits.leases.is_blocked = any(refused)
        return done

    def hear(self, slot: Slot, revision: int, text: bytes) -> None:
        """This is what the others have learned by now."""
        copy = self._copy(slot)
        if copy.is_on_its_way:
            return  # the answer to that tells more
        if copy.reports:
            self._plan(slot, -math.inf)
        if revision == copy.revision or (revision and not text):
            # What was known when it was asked for is outdated now: it will be repeated.
            return
        copy.revision = revision
        if revision:
            self._adopt(slot, copy, text)
        elif text and slot.learner.model is None:
            self._stored.recall(slot, text)
        if slot.learner.found_alone is not None:
            self._add_found(slot, slot.learner.found_alone)
            slot.learner.found_alone = None
            self._seed(slot, copy)
        elif slot.learner.model is not None and not revision:
            self._seed(slot, copy)

    def _seed(self, slot: Slot, copy: _Copy) -> None:
        copy.is_new = True
        self._plan(slot, -math.inf)

    def _plan(self, slot: Slot, at: float) -> None:
        self._unsaved[slot] = self._copy(slot)
        self.due_at = min(self.due_at, at)

    def _copy(self, slot: Slot) -> _Copy:
        if slot not in self._copies:
            self._copies[slot] = _Copy()
        return self._copies[slot]

    def _call(self, slot: Slot, copy: _Copy, now: float) -> Call:
        copy.sent, copy.reports = copy.reports, []
        copy.is_on_its_way = True
        model = slot.learner.model or slot.learner.new_model()
        try:
            copy.changes = [self._observe(model, report) for report in copy.sent]
            state = freeze(model)
        except (ArithmeticError, ValueError) as error:
            self._stored.warn_damaged(slot, error)
            model = slot.learner.new_model()
            copy.changes = [self._observe(model, report) for report in copy.sent]
            state = freeze(model)
        slot.adopt(model)
        learned = slot.learner.learned
        pause = max(
            (
                report.at + change.pause - now
                for report, change in zip(copy.sent, copy.changes, strict=True)
                if change.pause
            ),
            default=0.0,
        )
        summary = {"at": self._clock.at(now), **learned.to_dict()} if learned else {}
        keys = self._keys_of(slot)
        arguments: list[str | int] = [
            copy.revision,
            micros(1 / model.rate),
            model.cuts,
            text_of(state),
            _DETAILS_KEPT if learned else _LITTLE_KEPT,
            text_of(summary) if learned else "",
            _SUMMARY_KEPT,
            micros(max(0.0, pause)),
            micros(self._longest),
            copy.resets or 0,
        ]
        return Call("save", [keys.record, keys.members, keys.summary], arguments)

    def _observe(self, model: HostModel, report: Observation) -> Change:
        permit = report.permit
        return model.observe(
            permit._replace(sent_at=self._clock.at(permit.sent_at)),
            report.outcome,
            self._clock.at(report.at),
            report.chance,
            stale=permit.cuts < model.cuts,
            otherwise=report.otherwise,
        )

    def _adopt(self, slot: Slot, copy: _Copy, text: bytes) -> None:
        if not self._stored.adopt(slot, text):
            self._seed(slot, copy)

    def _add_found(self, slot: Slot, limit: float) -> None:
        """A host has refused this process while it was parted from the others."""
        model = slot.learner.model or slot.learner.new_model()
        if limit < model.governor.rate:
            model.governor.hear(limit, self._clock.now)
        slot.adopt(model)
