"""What ``scrapy politeness check`` found, in words."""

from __future__ import annotations

import time
from http.client import responses
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import duration, escaped, limits, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_politeness.commands.check import Check
    from scrapy_politeness.commands.probe import RobotsFile

_INDENT = 14
_NEARLY = 0.95


def lines(check: Check) -> Iterator[str]:
    yield escaped(check.url)
    for title, texts in (
        ("slot", [check.finding.slot or "(no host)"]),
        ("robots.txt", _robots(check)),
        ("settings", _settings(check)),
        ("learned", _learned(check)),
        ("speed", _speed(check)),
    ):
        for number, text in enumerate(texts):
            heading = "" if number else title
            yield f"  {heading:<{_INDENT - 2}}{escaped(text)}"


def _robots(check: Check) -> Iterator[str]:
    robots = check.finding.robots
    if robots is None:
        yield "not fetched, since the host is paused"
        return
    if robots.error is not None:
        yield f"could not be fetched: {robots.error}"
        return
    yield f"{robots.status} {responses.get(robots.status or 0, '')}".strip()
    yield _permission(robots, obeyed=check.obeys_robots)
    wishes = ", ".join(_wishes(robots))
    if wishes and not check.policy.robots:
        wishes += "; ignored, since POLITENESS_ROBOTS is off"
    if wishes:
        yield wishes


def _permission(robots: RobotsFile, *, obeyed: bool) -> str:
    verb = "allows" if robots.allowed else "forbids"
    text = f"{verb} this page to {robots.user_agent}"
    if not robots.allowed and not obeyed:
        text += "; ignored, since ROBOTSTXT_OBEY is off"
    return text


def _wishes(robots: RobotsFile) -> Iterator[str]:
    wishes = robots.wishes
    if wishes is None:
        return
    if wishes.crawl_delay is not None:
        yield f"Crawl-delay of {wishes.crawl_delay:.6g} s"
    if wishes.request_rate is not None:
        yield f"Request-rate of one per {wishes.request_rate:.6g} s"
    if wishes.hours is not None:
        yield f"visits {wishes.hours}"


def _settings(check: Check) -> Iterator[str]:
    policy = check.policy
    name = policy.own_limits_of(check.finding.slot)
    if name is not None:
        own = ", ".join(f"{key} {value}" for key, value in policy.limits[name].items())
        yield f"POLITENESS_LIMITS for {name}: {own}"
    if check.finding.slot in policy.download_slots:
        yield f"DOWNLOAD_SLOTS sets {check.finding.slot}"
    if policy.spacing:
        yield f"DOWNLOAD_DELAY of {policy.spacing:.6g} s"
    for setting, limit in (
        ("POLITENESS_GLOBAL_LIMIT", policy.global_limit),
        ("POLITENESS_IP_LIMIT", policy.ip_limit),
    ):
        if limit is not None:
            yield f"{setting} of {limit}"
    own_policy = check.finding.policy
    if own_policy is not None:
        bounds = own_policy.bounds
        text = f"starts at {rate(bounds.start_rate)}"
        if bounds.adaptive:
            text += f", adapts from {rate(bounds.min_rate)} to {rate(bounds.max_rate)}"
        yield text


def _learned(check: Check) -> Iterator[str]:
    known = check.known
    if known is None or known.entry is None:
        yield "nothing yet"
        return
    learned = known.entry.learned
    yield from limits(learned)
    yield f"learned {duration(max(0.0, time.time() - known.entry.at))} ago"


def _speed(check: Check) -> Iterator[str]:
    if (reason := check.why_free) is not None:
        yield f"not limited: {reason}"
        return
    status, fastest = check.finding.status, check.fastest
    assert status is not None
    assert fastest is not None
    text = rate(min(status.rate, fastest))
    if status.rate < _NEARLY * fastest:
        text += f" at first, at most {rate(fastest)}"
    yield f"{text}; at most {status.concurrency} in flight"
    if status.paused_for:
        yield f"paused for another {duration(status.paused_for)}"
