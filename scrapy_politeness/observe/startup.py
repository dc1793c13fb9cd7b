"""What is in force, logged when a crawl starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import counted

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_politeness.config.policy import Policy

logger = logging.getLogger(__name__)


def tell_terms(policy: Policy, spider: Spider | None, *, by_queue: bool) -> None:
    log = logging.LoggerAdapter(logger, {"spider": spider})
    _tell_rates(policy, log)
    if policy.limits:
        log.info(
            "POLITENESS_LIMITS sets limits for %(names)s",
            {"names": counted(len(policy.limits), "name")},
        )
    for what, limit in (
        ("all requests together", policy.global_limit),
        ("each server address", policy.ip_limit),
        ("each proxy", policy.proxy_limit),
    ):
        if limit is not None:
            log.info(
                "Limiting %(what)s to %(count)s per %(period).6g s",
                {
                    "count": counted(limit.count, "request"),
                    "period": limit.period,
                    "what": what,
                },
            )
    for what, path in (
        ("Keeping learned rates in", policy.state_path),
        ("Will write a report to", policy.report_path),
    ):
        if path is not None:
            log.info("%(what)s %(path)s", {"what": what, "path": path})
    if not by_queue:
        log.warning(
            "The scheduler does not use scrapy_politeness.PolitePriorityQueue: "
            "requests that have to wait in the downloader count towards "
            "CONCURRENT_REQUESTS and hold up other hosts (with scrapy-redis, use "
            "scrapy_politeness.scrapy_redis.PoliteQueue)"
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
            "exempt": ", ".join(sorted(policy.exempt)) or "none",
        },
    )
    if policy.spacing * bounds.max_rate > 1:
        log.info(
            "DOWNLOAD_DELAY=%(delay).3g limits each slot to %(rate).3g/s",
            {"delay": policy.spacing, "rate": 1 / policy.spacing},
        )
