"""What the log says about trouble when the crawl has ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import counted, percent
from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.observe.census import Census, SlotView
    from scrapy_politeness.observe.tally import Tally

logger = logging.getLogger(__name__)

# Of a broad crawl, the worst slots are named.
_MOST_TOLD = 10


def tell_troubles(census: Census, spider: Spider | None) -> None:
    """One line for each slot with trouble, the worst first."""
    log = logging.LoggerAdapter(logger, {"spider": spider})
    views = [view for view in census.slots if _troubles(view.tally)]
    views.sort(key=lambda view: _badness(view.tally), reverse=True)
    for view in views[:_MOST_TOLD]:
        log.log(
            _level(view.tally),
            "Summary for %(slot)s: %(account)s",
            {"slot": printable(view.key), "account": _account_of(view)},
        )
    rest = census.other.copy()
    for view in views[_MOST_TOLD:]:
        rest.add(view.tally)
    if _troubles(rest):
        log.log(
            _level(rest),
            "Summary for other slots: %(account)s",
            {"account": _account(rest)},
        )


def _troubles(tally: Tally) -> int:
    return tally.given_up + tally.troubles.total()


def _badness(tally: Tally) -> tuple[int, int]:
    return tally.given_up, tally.troubles.total()


def _level(tally: Tally) -> int:
    return logging.WARNING if tally.given_up else logging.INFO


def _account_of(view: SlotView) -> str:
    account = _account(view.tally)
    if view.status is not None and view.status.bad_luck:
        account += f"; about {percent(view.status.bad_luck)} fail whatever the rate"
    return account


def _account(tally: Tally) -> str:
    parts = [f"{tally.sent} sent", f"{tally.served} served"]
    parts += [
        f"{counted(times, 'time')} {name}"
        for name, times in tally.troubles.most_common()
    ]
    if tally.given_up:
        parts.append(f"{counted(tally.given_up, 'request')} given up")
    return ", ".join(parts)
