"""Parts of a host that turn out to have a limit of their own."""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.core.cause import Block
from scrapy_politeness.core.history import History
from scrapy_politeness.core.learned import Learned
from scrapy_politeness.core.lru import LRU
from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.core.parts import PARAMETER, SEGMENT, Part, PartEvidence
from scrapy_politeness.core.quota_parts import QuotaParts
from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Spider

    from scrapy_politeness.core.outcome import Outcome, Permit
    from scrapy_politeness.core.quota import Quota
    from scrapy_politeness.core.slot import Slot

logger = logging.getLogger(__name__)

# The first segment of the path, and the query.
_URL = re.compile(r"(?:[^/?#]*//[^/?#]*)?/*([^/?#]*)[^?#]*\??([^#]*)")

# Of a query, names alone: a value may be secret. And of both, only what is safe in a
# log, in the name of a slot and in a pattern.
_SEGMENT = re.compile(r"[\w.~%-]{1,64}", re.ASCII)
_PARAMETER = re.compile(r"(?:^|&)([\w.~-]{1,32})=", re.ASCII)
_MOST_PARAMETERS = 8

# Of many hosts, too little is fetched to learn anything.
_LEAST_SERVED = 5

# No host gets more slots than this because of its quotas.
_MOST_QUOTA_SLOTS = 10

_ADVICE = (
    "a slot of its own. To make this permanent: POLITENESS_SLOTS = [(r%(pattern)s, "
    "%(name)s)]; to prevent it: POLITENESS_SPLIT = False"
)


def parts_of(url: str) -> tuple[Part, ...]:
    """Return the parts of its host that a page belongs to."""
    match = _URL.match(url)
    assert match is not None  # each of its parts may be missing
    segment, query = match.groups()
    parts = (Part(SEGMENT, segment),) if _SEGMENT.fullmatch(segment) else ()
    if not query:
        return parts
    names = list(dict.fromkeys(_PARAMETER.findall(query)))[:_MOST_PARAMETERS]
    return parts + tuple(Part(PARAMETER, name) for name in names)


class Split(NamedTuple):
    """``part`` gets a slot of that name, because of what was ``answered`` so far."""

    name: str
    part: Part
    answered: History

    def apply(self, slot: Slot, part: Slot, permit: Permit, now: float) -> None:
        """Let both go on as if they had been two since the first refusal. The permit is
        that of the last one."""
        # The rest was served at the rate at which the part was refused.
        rate, until = permit.rate or slot.rate, slot.paused_until
        slot.relearn(self.answered.of(self.part, without=True), rate, now)
        limit = self.answered.limit_of(self.part)
        if limit is not None:
            part.keep_to(limit.rate, limit.spread, now)
        elif served := self.answered.served_rate(self.part):
            part.recall(Learned(served, None, None), now)
        part.block(Block.PAUSE, until)


@dataclass(slots=True, eq=False)
class _Evidence:
    """Of one host; ``refused_at`` is when the last refusal came that counts."""

    parts: PartEvidence = field(default_factory=PartEvidence)
    refused_at: float = -math.inf
    quotas: QuotaParts | None = None
    history: History = field(default_factory=History)

    def answered(self, parts: tuple[Part, ...], outcome: Outcome) -> None:
        name = None if outcome.quota is None else outcome.quota.name
        is_page = outcome.is_page and outcome.verdict is Verdict.SERVED
        if self.quotas is None:
            if name is None and is_page:
                return  # as with most hosts
            self.quotas = QuotaParts()
        self.quotas.answered(parts, name, is_page=is_page)


class Splits:
    """``is_applied`` says that a part becomes a slot of its own; else it is only
    logged that it should."""

    def __init__(
        self, most_slots: int, spider: Spider | None, *, is_applied: bool
    ) -> None:
        # Of each host; at first, only how many of its pages were served.
        self._evidence = LRU[str, _Evidence | int](most_slots, lambda host, _: True)
        self._slots: dict[str, dict[Part, str]] = {}
        self._log = logging.LoggerAdapter(logger, {"spider": spider})
        self._is_applied = is_applied
        self._logged: set[str] = set()

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._slots)

    def slot_for(self, host: str, url: str) -> str | None:
        slots = self._slots.get(host)
        if slots is None:
            return None
        return next((slots[part] for part in parts_of(url) if part in slots), None)

    def quota_slot(self, host: str, url: str, quota: Quota) -> str | None:
        """A page of the host's own slot states a quota that would slow it down. Return
        the slot of its own that its part gets, if no other part states that quota."""
        evidence = self._evidence.get(host, 0)
        slots = self._slots.get(host, {})
        if isinstance(evidence, int) or len(slots) >= _MOST_QUOTA_SLOTS:
            return None
        asked, total = evidence.parts.asked, evidence.parts.total
        quotas = evidence.quotas or QuotaParts()
        part = quotas.part_of(quota.name, parts_of(url), asked, total)
        if part is None:
            return None
        text = (
            "%(host)s: %(part)s states a quota that other pages do not "
            "(%(remaining)d requests left for %(reset).0f s)"
        )
        facts = {"remaining": quota.remaining, "reset": quota.reset}
        return self._give_slot(host, part, text, facts)

    def answered(
        self,
        host: str,
        url: str,
        permit: Permit,
        outcome: Outcome,
        now: float,
        *,
        is_new: bool = True,
    ) -> Split | None:
        """A page of the host's own slot was served or refused; it ``is_new`` unless it
        was refused before. Return the split that this leads to, if any."""
        evidence = self._evidence.get(host, 0)
        is_served = outcome.verdict is Verdict.SERVED
        if isinstance(evidence, int):
            if is_served:
                is_enough = evidence >= _LEAST_SERVED
                self._evidence[host] = _Evidence() if is_enough else evidence + 1
            return None
        parts = evidence.parts.kept_once(parts_of(url))
        evidence.history.add(parts, permit.sent_at, outcome, now)
        # A flight that is refused together says as much as one of it.
        if not is_served and (not is_new or permit.sent_at < evidence.refused_at):
            return None
        evidence.answered(parts, outcome)
        if is_served:
            evidence.parts.served(parts)
            return None
        evidence.refused_at = now
        found = evidence.parts.refused(parts, evidence.history)
        if found is None:
            return None
        del self._evidence[host]
        text = (
            "%(host)s: %(refused)d of %(all_refused)d refusals fall on %(part)s, which "
            "is %(asked)d of %(all_asked)d requests"
        )
        name = self._give_slot(host, found.part, text, found._asdict())
        return None if name is None else Split(name, found.part, evidence.history)

    def _give_slot(
        self, host: str, part: Part, text: str, facts: Mapping[str, object]
    ) -> str | None:
        """Return the name of the slot, unless it is only recommended."""
        name = _name(host, part)
        if name in self._logged:
            return None
        self._logged.add(name)
        details = {
            "host": printable(host),
            "pattern": f'"{_pattern(host, part)}"',
            "name": f'"{printable(name)}"',
            "part": _described(part),
        }
        verb = "gets" if self._is_applied else "should get"
        self._log.info(f"{text}, so it {verb} {_ADVICE}", {**facts, **details})
        if not self._is_applied:
            return None
        self._slots.setdefault(host, {})[part] = name
        return name


def _name(host: str, part: Part) -> str:
    value = part.value if part.kind == SEGMENT else f"?{part.value}="
    return f"{host} {value}".lower()


def _described(part: Part) -> str:
    return f"/{part.value}" if part.kind == SEGMENT else f"?{part.value}=…"


def _pattern(host: str, part: Part) -> str:
    """Return a regular expression for POLITENESS_SLOTS."""
    name = rf"\[{re.escape(host)}\]" if ":" in host else re.escape(host)
    site = rf"^https?://{printable(name)}(:\d+)?/"
    if part.kind == SEGMENT:
        return rf"{site}{re.escape(part.value)}([/?#]|$)"
    return rf"{site}[^#]*[?&]{re.escape(part.value)}="
