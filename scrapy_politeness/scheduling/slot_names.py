"""Which slot a request belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_politeness.http.domains import domain_of
from scrapy_politeness.http.names import public_request
from scrapy_politeness.http.scrapy_internals import host_of, is_local

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.config.rules import SlotPattern
    from scrapy_politeness.http.scrapy_internals import Engine
    from scrapy_politeness.scheduling.splits import Splits

# Limits one request under this key instead of its download slot.
SLOT = "politeness_slot"


class SlotName(NamedTuple):
    """``parent`` is the slot that the request would belong to without a pattern, ""
    where the request itself names its slot. ``is_free`` says that nothing limits it."""

    key: str
    host: str
    parent: str = ""
    is_free: bool = False


class SlotNames:
    """In this order: what the request's meta says; the first pattern of
    POLITENESS_SLOTS that matches; the part of the host that has turned out to have a
    limit of its own; the host, or its domain with POLITENESS_GROUP_BY.
    """

    def __init__(
        self, policy: Policy, engine: Engine, splits: Splits | None = None
    ) -> None:
        self.splits = splits
        self._policy = policy
        self._engine = engine
        self._patterns = policy.slots
        self._by_domain = policy.group_by == "domain"

    def of(self, request: Request) -> SlotName:
        own, is_host = self._engine.slot_name(request)
        chosen = request.meta.get(SLOT)
        if chosen or not is_host:
            key = _checked(request, chosen or own)
            host = host_of(request)
        else:
            key = host = own.lower()
        if not request.url.startswith("http") and is_local(request):
            return SlotName(key, host, is_free=True)
        if self._policy.is_exempt(host):
            return SlotName(key, host, is_free=True)
        if chosen or (not is_host and self._engine.has_chosen_slot(request)):
            return SlotName(key, host)
        parent = domain_of(host) if self._by_domain else key
        pattern = self.pattern_for(request) if self._patterns else None
        if pattern is not None:
            return SlotName(pattern.name, host, parent)
        found = self.splits.slot_for(parent, request.url) if self.splits else None
        return SlotName(found or parent, host, parent)

    def pattern_for(self, request: Request) -> SlotPattern | None:
        """Return the first that matches."""
        url = request.url
        return next((each for each in self._patterns if each.pattern.search(url)), None)


def _checked(request: Request, key: object) -> str:
    if not isinstance(key, str):
        # No ValueError: the scheduler would try the memory queue next.
        where = public_request(request)
        raise TypeError(f"The slot {key!r:.80} of {where} must be a string")
    return key.lower()
