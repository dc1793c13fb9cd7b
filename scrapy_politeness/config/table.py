"""The table of settings: name, default, rule and meaning of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_politeness.config import rules, slots
from scrapy_politeness.config.refusals import Rule, refusal_rules
from scrapy_politeness.config.settings import declared, setting

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy.settings import BaseSettings

    from scrapy_politeness.config.rules import SlotPattern
    from scrapy_politeness.config.slots import Limits
    from scrapy_politeness.core.pace import Limit


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rates are requests per second, times are seconds."""

    # fmt: off
    enabled: bool = setting("POLITENESS_ENABLED", True, rules.flag,
        "`False`: Scrapy behaves as without the add-on")
    start_rate: float = setting("POLITENESS_START_RATE", 1.0, rules.positive,
        "the initial rate of a slot")
    min_rate: float = setting("POLITENESS_MIN_RATE", 0.1, rules.positive,
        "the lowest rate to adapt to; robots.txt and your own limits may be lower")
    max_rate: float = setting("POLITENESS_MAX_RATE", 10.0, rules.positive,
        "the highest rate to adapt to")
    decrease_factor: float = setting("POLITENESS_DECREASE_FACTOR", 0.5, rules.fraction,
        "the rate is multiplied by this after a refusal or timeout, until the next "
        "success")
    raise_after: int = setting("POLITENESS_RAISE_AFTER", 10, rules.at_least_one,
        "successes before the rate is doubled, until a limit is found")
    backoff_base: float = setting("POLITENESS_BACKOFF_BASE", 5.0, rules.positive,
        "the pause after a refusal without Retry-After; "
        "[shorter](how-it-works.md#how-long-it-pauses) if it may be bad luck. "
        "Doubles with each refusal in a row, and then also overrides a smaller "
        "Retry-After")
    backoff_max: float = setting("POLITENESS_BACKOFF_MAX", 300.0, rules.positive,
        "the longest such pause, and the longest time between two attempts at a page "
        "that [fails](faults.md#pages-that-fail). A host that is down is tried more "
        "often: about twice a minute, or after a twentieth of its outage")
    retry_after_max: float = setting("POLITENESS_RETRY_AFTER_MAX", 3600.0,
        rules.positive,
        "a longer Retry-After is reduced to this, with a warning")
    http_codes: frozenset[int] = setting("POLITENESS_HTTP_CODES", [429, 503],
        rules.http_codes,
        'status codes that mean "too fast"')
    refusals: tuple[Rule, ...] = setting("POLITENESS_REFUSALS", [], refusal_rules,
        'rules for [what else](faults.md#walls) means "too fast" or "not welcome", '
        "with the [keys](#keys-of-politeness_refusals) below")
    max_reschedules: int = setting("POLITENESS_MAX_RESCHEDULES", 20, rules.count,
        "how often a refused request is rescheduled, in addition to `RETRY_TIMES`; "
        "after that, Scrapy's retries and your spider get the refusal. "
        "[Pages that fail](faults.md#pages-that-fail) while others are served are "
        "passed on earlier")
    give_up_after: float = setting("POLITENESS_GIVE_UP_AFTER", 86400.0,
        rules.not_negative,
        "when a host has served nothing for this long and refused at least five times "
        "in a row, [its requests are given up](faults.md#hosts-that-only-refuse); "
        "0: never")
    robots: bool = setting("POLITENESS_ROBOTS", True, rules.flag,
        "obey Crawl-delay, Request-rate and Visit-time in robots.txt")
    robots_max_delay: float | None = setting("POLITENESS_ROBOTS_MAX_DELAY", None,
        rules.optional(rules.positive),
        "a longer delay in robots.txt is reduced to this, with a warning; by default, "
        "every delay is obeyed")
    robots_unreachable: str = setting("POLITENESS_ROBOTS_UNREACHABLE", "disallow",
        rules.one_of("disallow", "allow"),
        "what it means for `ROBOTSTXT_OBEY` if "
        "[robots.txt is unreachable](faults.md#an-unreachable-robotstxt)")
    limits: Limits = setting("POLITENESS_LIMITS", {}, slots.limits,
        "[limits for individual slots](limits.md), with the "
        "[keys](#keys-of-politeness_limits) below")
    global_limit: Limit | None = setting("POLITENESS_GLOBAL_LIMIT", None,
        rules.optional_limit,
        'a limit for all requests together, such as `"12/s"`')
    ip_limit: Limit | None = setting("POLITENESS_IP_LIMIT", None, rules.optional_limit,
        "a limit for each server address, shared by all its hosts")
    proxy_limit: Limit | None = setting("POLITENESS_PROXY_LIMIT", None,
        rules.optional_limit,
        "a limit for each proxy")
    global_bandwidth: float | None = setting("POLITENESS_GLOBAL_BANDWIDTH", None,
        rules.optional(rules.bandwidth, unset=(None, "None")),
        'how much may arrive [per second](limits.md#bandwidth) in total, such as '
        '`"20MB/s"`')
    slots: tuple[SlotPattern, ...] = setting("POLITENESS_SLOTS", [],
        rules.slot_patterns,
        "[slots for parts of a site](limits.md#parts-of-a-site): a list of (URL "
        "pattern, slot name) pairs; the first pattern that matches wins")
    split: bool = setting("POLITENESS_SPLIT", True, rules.flag,
        "give a part of a host its own slot where "
        "[the refusals fall on it alone](limits.md#parts-that-are-found)")
    group_by: str = setting("POLITENESS_GROUP_BY", "host", rules.grouping,
        '`"domain"`: all hosts of one '
        "[registrable domain](limits.md#hosts-of-one-domain) are one slot")
    max_slots: int = setting("POLITENESS_MAX_SLOTS", 10_000, rules.at_least_one,
        "how many slots are kept in memory; beyond that, those idle longest are "
        "forgotten")
    exempt: frozenset[str] = setting("POLITENESS_EXEMPT",
        ["localhost", "127.0.0.1", "::1"], rules.host_names,
        'hosts left to Scrapy alone; `"*.example.org"` for all subdomains')
    state: str | None = setting("POLITENESS_STATE", None, rules.optional(rules.path),
        "a file that keeps learned rates and pauses between runs; with `JOBDIR`, "
        "`politeness.sqlite` in that folder by default")
    dupefilter: bool = setting("POLITENESS_DUPEFILTER", True, rules.flag,
        "with `JOBDIR`, store what was seen [together with the "
        "requests](how-it-works.md#resuming), unless you have set `DUPEFILTER_CLASS`; "
        "`False`: leave it to Scrapy. The same for "
        "[scrapy-redis](several-processes.md#with-scrapy-redis)")
    progress: bool | None = setting("POLITENESS_PROGRESS", None,
        rules.optional(rules.progress),
        "[a live display](observing.md#progress) in a terminal; `None`: where "
        "possible, otherwise a line in the log now and then")
    prometheus_port: int | None = setting("POLITENESS_PROMETHEUS_PORT", None,
        rules.optional(rules.port),
        "a port for metrics; 0 for any free one, which is logged")
    prometheus_host: str = setting("POLITENESS_PROMETHEUS_HOST", "127.0.0.1",
        rules.host_name,
        'the address to serve them on; `"0.0.0.0"` for all interfaces')
    report_path: Path | None = setting("POLITENESS_REPORT", None,
        rules.optional(rules.output),
        'a file, such as `"report.html"`, for a report of the crawl, written every '
        "minute and at the end; its folder must exist")
    redis_url: str | None = setting("POLITENESS_REDIS_URL", None,
        rules.optional(rules.redis_url),
        "a Redis server through which [several processes](several-processes.md) share "
        "their rate limits")
    # fmt: on


ROWS = declared(Table)
SETTINGS = {row.name: row for row in ROWS.values()}


def is_enabled(settings: BaseSettings) -> bool:
    return bool(SETTINGS["POLITENESS_ENABLED"].read(settings))


def wants_dupefilter(settings: BaseSettings) -> bool:
    return bool(SETTINGS["POLITENESS_DUPEFILTER"].read(settings))
