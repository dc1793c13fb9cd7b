"""What is logged at the start and at the end of a crawl."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import counted, percent
from scrapy_politeness.http.names import printable

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.observe.census import Census
    from scrapy_politeness.observe.tally import Tally

logger = logging.getLogger(__name__)

# How many slots with failures are named.
_MOST_SLOTS = 10


def log_settings(policy: Policy, spider: Spider | None, *, by_queue: bool) -> None:
    log = logging.LoggerAdapter(logger, {"spider": spider})
    bounds = policy.bounds
    log.info(
        "Polite crawl: each slot starts at %(start).3g/s and adapts between "
        "%(low).3g/s and %(high).3g/s; robots.txt delays are %(robots)s; "
        "exempt: %(exempt)s",
        {
            "start": bounds.start_rate,
            "low": bounds.min_rate,
            "high": bounds.max_rate,
            "robots": "obeyed" if policy.robots else "ignored",
            "exempt": ", ".join(sorted(policy.exempt)) or "none",
        },
    )
    if policy.spacing * bounds.max_rate > 1:
        log.info(
            "DOWNLOAD_DELAY=%(delay).3g limits each slot to %(rate).3g/s; remove it to "
            "let rates adapt",
            {"delay": policy.spacing, "rate": 1 / policy.spacing},
        )
    if policy.limits:
        names = counted(len(policy.limits), "slot")
        log.info("POLITENESS_LIMITS has limits for %(names)s", {"names": names})
    for scope, limit in (
        ("all requests together", policy.global_limit),
        ("each server address", policy.ip_limit),
        ("each proxy", policy.proxy_limit),
    ):
        if limit is not None:
            windows = (
                f"{counted(each.count, 'request')} per {each.period:.6g} s"
                for each in (limit, *limit.longer)
            )
            log.info(
                "Limiting %(scope)s to %(windows)s",
                {"scope": scope, "windows": " and ".join(windows)},
            )
    if policy.global_bandwidth is not None:
        log.info(
            "Limiting all responses together to %(rate).6g MB/s",
            {"rate": policy.global_bandwidth / 1e6},
        )
    if policy.group_by == "domain":
        log.info("All hosts of one registrable domain are one slot")
    if policy.slots:
        names = ", ".join(dict.fromkeys(each.name for each in policy.slots))
        log.info("POLITENESS_SLOTS: slots for %(names)s", {"names": printable(names)})
    if policy.state_path is not None:
        log.info("Keeping learned rates in %(path)s", {"path": policy.state_path})
    if policy.report_path is not None:
        log.info("Will write a report to %(path)s", {"path": policy.report_path})
    if not by_queue:
        log.warning(
            "The scheduler does not use scrapy_politeness.PolitePriorityQueue: "
            "requests that have to wait in the downloader count towards "
            "CONCURRENT_REQUESTS and hold up other hosts (with scrapy-redis, use "
            "scrapy_politeness.scrapy_redis.PoliteQueue)"
        )


def log_summary(census: Census, spider: Spider | None) -> None:
    """One line for each slot with failures, the worst first."""
    log = logging.LoggerAdapter(logger, {"spider": spider})
    views = sorted(census.slots, key=lambda v: _failures(v.tally), reverse=True)
    named = [view for view in views[:_MOST_SLOTS] if any(_failures(view.tally))]
    rest = census.other.copy()
    for view in views[_MOST_SLOTS:]:
        if any(_failures(view.tally)):
            rest.add(view.tally)
    lines = [(printable(view.key), view.tally, view.status) for view in named]
    for name, tally, status in (*lines, ("other slots", rest, None)):
        if not any(_failures(tally)):
            continue
        summary = _summary(tally)
        if status is not None and status.bad_luck:
            summary += f"; about {percent(status.bad_luck)} fail whatever the rate"
        log.log(
            logging.WARNING if tally.given_up else logging.INFO,
            "Summary for %(slot)s: %(summary)s",
            {"slot": name, "summary": summary},
        )


def _failures(tally: Tally) -> tuple[int, int]:
    return tally.given_up, tally.failures.total()


def _summary(tally: Tally) -> str:
    parts = [f"{tally.sent} sent", f"{tally.served} served"]
    parts += [
        f"{reason} ({counted(times, 'time')})"
        for reason, times in tally.failures.most_common()
    ]
    if tally.blocked_because:
        parts.append("then stopped, since this crawler is not welcome")
    if tally.given_up:
        parts.append(f"{counted(tally.given_up, 'request')} given up")
    return ", ".join(parts)
