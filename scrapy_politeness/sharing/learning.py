"""What several processes have learned together of each host."""

from __future__ import annotations

import json
import math
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.snapshot import freeze, number, thaw
from scrapy_politeness.http.names import printable
from scrapy_politeness.sharing.redis import Call, micros, slot_name

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.governor.host_model import Change, HostModel
    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.slot import Slot
    from scrapy_politeness.sharing.redis import Keys
    from scrapy_politeness.sharing.replies import Saved
    from scrapy_politeness.sharing.server_clock import ServerClock

# Seconds. For so long every detail is worth something; after that, only the limit
# that was found. Most hosts of a broad crawl are visited once, and nothing is found.
_DETAILS_KEPT = 600
_LITTLE_KEPT = 60
_GIST_KEPT = 7 * 86400

# Seconds. What was served is reported so often; what was refused at once.
_REPORT_EVERY = 0.1

_TRY_AGAIN = 0.01

# Not known yet; and whatever it is, it does not count any more.
_UNKNOWN = -1
_OVERRIDE = -2


class Observation(NamedTuple):
    """A request is over; see ``HostModel.observe``. Times are local."""

    permit: Permit
    outcome: Outcome
    at: float
    chance: float
    otherwise: float


class _Page:
    """What this process knows of one slot's lore: up to which revision, what it has
    to add, and what is on its way there."""

    __slots__ = ("changes", "is_new", "reports", "revision", "sent")

    def __init__(self) -> None:
        self.revision = _UNKNOWN
        self.reports: list[Observation] = []
        self.sent: list[Observation] = []
        self.changes: list[Change] = []
        # There is something to be saved, although nothing is to be reported.
        self.is_new = False


class SharedLearning:
    """One governor for all processes: whoever has something to report takes it as the
    last one left it, lets it observe that, and saves it. If somebody else was faster,
    it is done again with what that one has left."""

    def __init__(
        self,
        keys: Keys,
        clock: ServerClock,
        policy: Policy,
        log: logging.LoggerAdapter[Any],
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._longest = policy.longest_pause
        self._log = log
        self._pages: WeakKeyDictionary[Slot, _Page] = WeakKeyDictionary()
        self._unsaved: dict[Slot, _Page] = {}
        self._due_at = math.inf
        self._has_warned = False

    def due_in(self, now: float) -> float | None:
        """Return in how many seconds there will be something to save, if ever."""
        return max(0.0, self._due_at - now) if self._due_at < math.inf else None

    def add(self, slot: Slot, report: Observation) -> None:
        self._page(slot).reports.append(report)
        hurry = report.outcome.verdict.calls_for_pause
        self._plan(slot, report.at if hurry else report.at + _REPORT_EVERY)

    def forget(self, slot: Slot) -> None:
        """What is known of this slot is out of date, for all of them."""
        page = self._pages[slot] = _Page()
        page.revision = _OVERRIDE
        self._seed(slot, page)

    def start_anew(self) -> None:
        """The server may have forgotten something, or everything."""
        for page in self._pages.values():
            page.revision = _UNKNOWN

    def left(self) -> Iterator[tuple[Slot, list[Observation]]]:
        """Give back what could not be saved."""
        unsaved, self._unsaved = self._unsaved, {}
        self._due_at = math.inf
        for slot, page in unsaved.items():
            reports = page.sent + page.reports
            self._pages[slot] = _Page()
            yield slot, reports

    @property
    def has_unsaved(self) -> bool:
        return bool(self._unsaved)

    def calls(self, now: float) -> list[tuple[Slot, Call]]:
        if now < self._due_at:
            return []
        self._due_at = math.inf
        return [(slot, self._call(slot, page)) for slot, page in self._unsaved.items()]

    def revision_of(self, slot: Slot) -> int:
        """Return which one will be known when all is saved that is on its way."""
        page = self._page(slot)
        return page.revision + bool(page.sent or page.is_new)

    def answered(self, slot: Slot, answer: Saved) -> list[tuple[Observation, Change]]:
        """Return what has come of the reports that were saved."""
        _, revision, is_saved, text = answer
        page = self._page(slot)
        page.revision = revision
        if not is_saved and revision:
            # Somebody else was faster. Not all shall try again at the same time.
            page.reports = page.sent + page.reports
            page.sent, page.changes = [], []
            self._adopt(slot, page, text)
            self._plan(slot, time.monotonic() + random.uniform(0, _TRY_AGAIN))
            return []
        done = list(zip(page.sent, page.changes, strict=True))
        page.sent, page.changes, page.is_new = [], [], False
        if not is_saved:  # the server has forgotten all
            self._seed(slot, page)
        elif not page.reports:
            self._unsaved.pop(slot, None)
        assert slot.leases is not None
        refused = (report.outcome.verdict.is_overload for report in page.reports)
        slot.leases.is_blocked = any(refused)
        return done

    def heard(self, slot: Slot, revision: int, text: bytes) -> None:
        """This is what all know by now."""
        page = self._page(slot)
        if revision == page.revision:
            return
        page.revision = revision
        if revision:
            self._adopt(slot, page, text)
        elif text and slot.model is None:
            self._recall(slot, text)
        if slot.found_alone is not None:
            self._tell_found(slot, slot.found_alone)
            slot.found_alone = None
            self._seed(slot, page)
        elif slot.model is not None and not revision:
            self._seed(slot, page)

    def _seed(self, slot: Slot, page: _Page) -> None:
        page.is_new = True
        self._plan(slot, -math.inf)

    def _plan(self, slot: Slot, at: float) -> None:
        self._unsaved[slot] = self._page(slot)
        self._due_at = min(self._due_at, at)

    def _page(self, slot: Slot) -> _Page:
        if slot not in self._pages:
            self._pages[slot] = _Page()
        return self._pages[slot]

    def _call(self, slot: Slot, page: _Page) -> Call:
        page.sent, page.reports = page.reports, []
        model = slot.model or slot.new_model()
        try:
            page.changes = [self._observe(model, report) for report in page.sent]
        except (ArithmeticError, ValueError) as error:
            self._warn_damaged(slot, error)
            model = slot.new_model()
            page.changes = [self._observe(model, report) for report in page.sent]
        slot.adopt(model)
        learned = slot.learned
        now = self._clock.now
        silence = max(
            (
                self._clock.at(report.at) + change.pause - now
                for report, change in zip(page.sent, page.changes, strict=True)
                if change.pause
            ),
            default=0.0,
        )
        keys = self._keys.of(slot_name(slot.key))
        arguments: list[str | int] = [
            page.revision,
            micros(1 / model.rate),
            model.cuts,
            _text(freeze(model)),
            _DETAILS_KEPT if learned else _LITTLE_KEPT,
            _text({"at": now, **learned.to_dict()}) if learned else "",
            _GIST_KEPT,
            micros(max(0.0, silence)),
            micros(self._longest),
        ]
        return Call("save", [keys.lore, keys.gist, keys.times], arguments)

    def _observe(self, model: HostModel, report: Observation) -> Change:
        permit = report.permit
        return model.observe(
            replace(permit, sent_at=self._clock.at(permit.sent_at)),
            report.outcome,
            self._clock.at(report.at),
            report.chance,
            stale=permit.cuts < model.cuts,
            otherwise=report.otherwise,
        )

    def _adopt(self, slot: Slot, page: _Page, text: bytes) -> None:
        try:
            slot.adopt(thaw(slot.new_model(), _values(text)))
        except ValueError as error:  # not JSON, not UTF-8, not model
            self._warn_damaged(slot, error)
            slot.adopt(slot.new_model())
            self._seed(slot, page)

    def _tell_found(self, slot: Slot, limit: float) -> None:
        """A host has refused this process while the others could not be told."""
        model = slot.model or slot.new_model()
        if limit < model.governor.rate:
            model.governor.hear(limit, self._clock.now)
        slot.adopt(model)

    def _recall(self, slot: Slot, text: bytes) -> None:
        try:
            values = _values(text)
            if not isinstance(values, dict):
                raise ValueError(f"not an entry: {values!r:.80}")
            age = self._clock.now - number(values.get("at"))
            learned = Learned.from_dict(values).aged(age, slot.start_rate)
        except ValueError as error:
            self._warn_damaged(slot, error)
        else:
            slot.recall(learned, self._clock.now)

    def _warn_damaged(self, slot: Slot, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._log.warning(
                "What Redis knows of %(slot)s cannot be read, and is dropped; of "
                "others, too, without further notice: %(error)s",
                {"slot": printable(slot.key), "error": printable(str(error))},
            )


def _values(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _text(values: object) -> str:
    return json.dumps(values, separators=(",", ":"))
