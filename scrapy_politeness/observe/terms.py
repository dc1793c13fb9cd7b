"""What is in force, told when a crawl begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.observe.text import counted

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy

logger = logging.getLogger(__name__)


def tell_terms(policy: Policy, spider: Spider | None, *, by_queue: bool) -> None:
    log = logging.LoggerAdapter(logger, {"spider": spider})
    _tell_rates(policy, log)
    if policy.limits:
        log.info(
            "POLITENESS_LIMITS has limits for %(names)s",
            {"names": counted(len(policy.limits), "name")},
        )
    for what, limit in (
        ("all requests together", policy.global_limit),
        ("each server address", policy.ip_limit),
        ("each proxy", policy.proxy_limit),
    ):
        if limit is not None:
            log.info(
                "At most %(count)s in %(period).6g s for %(what)s",
                {
                    "count": counted(limit.count, "request"),
                    "period": limit.period,
                    "what": what,
                },
            )
    for what, path in (
        ("Learned rates are kept in", policy.state_path),
        ("At the end, a report will be in", policy.report_path),
    ):
        if path is not None:
            log.info("%(what)s %(path)s", {"what": what, "path": path})
    if not by_queue:
        log.warning(
            "The scheduler does not use scrapy_politeness.PolitePriorityQueue: "
            "requests that must wait for their host wait in the downloader, where "
            "they count towards CONCURRENT_REQUESTS and hold up other hosts (for "
            "scrapy-redis, there is scrapy_politeness.scrapy_redis.PoliteQueue)"
        )


def _tell_rates(policy: Policy, log: logging.LoggerAdapter[logging.Logger]) -> None:
    bounds = policy.bounds
    log.info(
        "Polite crawl: each slot starts at %(start).3g/s and adapts between "
        "%(low).3g/s and %(high).3g/s; robots.txt delays are %(robots)s; "
        "exempt: %(exempt)s",
        {
            "start": bounds.start_rate,
            "low": bounds.min_rate,
            "high": bounds.max_rate,
            "robots": "obeyed" if policy.robots else "not read",
            "exempt": ", ".join(sorted(policy.exempt)) or "nobody",
        },
    )
    if policy.spacing * bounds.max_rate > 1:
        log.info(
            "DOWNLOAD_DELAY=%(delay).3g keeps each slot at %(rate).3g/s at most",
            {"delay": policy.spacing, "rate": 1 / policy.spacing},
        )
