"""``scrapy politeness check``: how one page would be crawled, and why."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http.client import responses
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.exceptions import UsageError
from scrapy.utils.url import strip_url

from scrapy_politeness.commands.output import CommandError, print_json, print_text
from scrapy_politeness.commands.robots_probe import Finding, RobotsFile, RobotsProbe
from scrapy_politeness.commands.state import SlotState, open_state, read
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.core.text import duration, escaped, limits, rate
from scrapy_politeness.http.names import public

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from scrapy.commands import ScrapyCommand

SUMMARY = "Show how a page would be crawled: robots.txt, settings, learned rates"

_INDENT = 14
_NEARLY = 0.95


@dataclass(frozen=True)
class Check:
    url: str
    policy: Policy
    obeys_robots: bool
    finding: Finding
    learned: SlotState | None

    @property
    def why_unlimited(self) -> str | None:
        if not self.policy.enabled:
            return "POLITENESS_ENABLED is off"
        if self.finding.status is not None:
            return None
        off = self.policy.is_off(self.finding.slot)
        return "its rate or delay is set to 0" if off else "it is in POLITENESS_EXEMPT"

    @property
    def fastest(self) -> float | None:
        """The highest rate that the crawl may reach."""
        own, robots, policy = self.finding.policy, self.finding.robots, self.policy
        if own is None:
            return None
        above = [policy.for_slot(name) for name in self.finding.above]
        spacings = [
            spacing
            for each in (own, *above)
            if each is not None
            for spacing in (each.spacing, each.floor)
        ]
        if policy.robots and robots and robots.directives and robots.directives.delay:
            spacings.append(robots.directives.delay_within(policy.robots_max_delay))
        shared = (policy.global_limit, policy.ip_limit)
        spacing = max(*spacings, *(limit.interval for limit in shared if limit))
        return min(own.bounds.max_rate, 1 / spacing) if spacing else own.bounds.max_rate


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="the page")
    parser.add_argument(
        "--spider", metavar="NAME", help="use the custom_settings of this spider"
    )


def run(command: ScrapyCommand, opts: Namespace) -> int:
    assert command.settings is not None
    spider = _spider(command, opts.spider)
    settings = command.settings.copy()
    spider.update_settings(settings)
    policy = Policy.read(settings)
    finding, learned = _crawl(command, opts.url, spider, policy)
    obeys_robots = settings.getbool("ROBOTSTXT_OBEY")
    url = without_credentials(opts.url)
    check = Check(url, policy, obeys_robots, finding, learned)
    if opts.json:
        print_json(_as_dict(check))
    else:
        print_text("\n".join(_lines(check)))
    return int(finding.robots is not None and finding.robots.error is not None)


def validate_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{public(url)!r} is not a URL: {error}") from None
    if parts.scheme.lower() not in ("http", "https") or not host:
        raise UsageError(
            f"{public(url)!r} must be a URL such as https://example.org/page"
        )


def without_credentials(url: str) -> str:
    return strip_url(url, strip_default_port=False, strip_fragment=False)


def _spider(command: ScrapyCommand, name: str | None) -> type[Spider]:
    assert command.crawler_process is not None
    if name is None:
        return Spider
    try:
        return command.crawler_process.spider_loader.load(name)
    except KeyError:
        raise UsageError(f"unknown spider {name!r}") from None


def _crawl(
    command: ScrapyCommand, url: str, spider: type[Spider], policy: Policy
) -> tuple[Finding, SlotState | None]:
    process = command.crawler_process
    assert process is not None
    findings: list[Finding] = []
    learned: list[SlotState] = []

    def look_up(slot_key: str) -> None:
        path = policy.state_path
        if path is not None and path.is_file():
            with open_state(path) as state:
                learned.extend(read(state, [slot_key], time.time()))

    probe = type("Probe", (RobotsProbe,), {"like": spider})
    process.crawl(probe, page=url, look_up=look_up, found=findings.append)
    process.start()
    if not findings:
        raise CommandError("cannot fetch robots.txt; see the log")
    return findings[0], learned[0] if learned else None


def _as_dict(check: Check) -> dict[str, Any]:
    finding, policy, learned = check.finding, check.policy, check.learned
    status = finding.status
    names = [policy.own_limits_of(slot) for slot in (finding.slot, *finding.above)]
    plain = {
        name: {
            key: str(v) if isinstance(v, Limit) else v
            for key, v in policy.limits[name].items()
        }
        for name in names
        if name is not None
    }
    return {
        "url": check.url,
        "slot": finding.slot,
        "pattern": finding.pattern,
        "unlimited_because": check.why_unlimited,
        "robots": finding.robots and _robots_as_dict(check, finding.robots),
        "limits": plain or None,
        "learned": learned.as_dict(time.time()) if learned and learned.entry else None,
        "paused_for": status.paused_for if status else 0.0,
        "rate": status.rate if status else None,
        "fastest_rate": check.fastest,
        "concurrency": status.concurrency if status else None,
    }


def _robots_as_dict(check: Check, robots: RobotsFile) -> dict[str, Any]:
    delay, seconds, hours = robots.directives or (None, None, None)
    return {
        "url": without_credentials(robots.url),
        "status": robots.status,
        "error": robots.error,
        "user_agent": robots.user_agent,
        "allowed": robots.allowed,
        "obeyed": check.obeys_robots,
        "crawl_delay": delay,
        "seconds_per_request": seconds,
        "visit_time": str(hours) if hours else None,
        "delays_obeyed": check.policy.robots,
    }


def _lines(check: Check) -> Iterator[str]:
    yield escaped(check.url)
    for title, texts in (
        ("slot", _slot(check)),
        ("robots.txt", _robots(check)),
        ("settings", _settings(check)),
        ("learned", _learned(check)),
        ("speed", _speed(check)),
    ):
        for number, text in enumerate(texts):
            heading = "" if number else title
            yield f"  {heading:<{_INDENT - 2}}{escaped(text)}"


def _slot(check: Check) -> Iterator[str]:
    finding = check.finding
    yield finding.slot or "(no host)"
    if finding.pattern is not None:
        yield f"since POLITENESS_SLOTS has the pattern {finding.pattern}"
    elif check.policy.group_by == "domain" and finding.status is not None:
        yield "since POLITENESS_GROUP_BY makes one slot of each domain"


_DISALLOWED = "requests would wait for it, and be dropped if it stays unreachable"
_WITHOUT = "pages would be fetched without it"


def _robots(check: Check) -> Iterator[str]:
    robots = check.finding.robots
    if robots is None:
        yield "not fetched, since the host is paused"
        return
    if robots.error is not None:
        yield f"could not be fetched: {robots.error}"
    else:
        yield f"{robots.status} {responses.get(robots.status or 0, '')}".strip()
    if robots.is_unreachable(check.policy.http_codes):
        is_fatal = check.policy.disallows_unreachable and check.policy.robots
        yield f"unreachable: {_DISALLOWED if is_fatal else _WITHOUT}"
        return
    verb = "allows" if robots.allowed else "forbids"
    ignored = not robots.allowed and not check.obeys_robots
    note = "; ignored, since ROBOTSTXT_OBEY is off" if ignored else ""
    yield f"{verb} this page to {robots.user_agent}{note}"
    asked = ", ".join(_wishes(robots))
    if asked and not check.policy.robots:
        asked += "; ignored, since POLITENESS_ROBOTS is off"
    if asked:
        yield asked


def _wishes(robots: RobotsFile) -> Iterator[str]:
    delay, seconds, hours = robots.directives or (None, None, None)
    if delay is not None:
        yield f"Crawl-delay of {delay:.6g} s"
    if seconds is not None:
        yield f"Request-rate of one per {seconds:.6g} s"
    if hours is not None:
        yield f"visits {hours}"


def _settings(check: Check) -> Iterator[str]:
    policy = check.policy
    for slot in (check.finding.slot, *check.finding.above):
        note = "" if slot == check.finding.slot else f", over all slots of {slot}"
        name = policy.own_limits_of(slot)
        if name is not None:
            own = ", ".join(_limit(key, v) for key, v in policy.limits[name].items())
            yield f"POLITENESS_LIMITS for {name}: {own}{note}"
        if slot in policy.download_slots:
            yield f"DOWNLOAD_SLOTS for {slot}{note}"
    if policy.spacing:
        yield f"DOWNLOAD_DELAY of {policy.spacing:.6g} s"
    if policy.global_limit is not None:
        yield f"POLITENESS_GLOBAL_LIMIT of {policy.global_limit}"
    if policy.ip_limit is not None:
        yield f"POLITENESS_IP_LIMIT of {policy.ip_limit}"
    if policy.global_bandwidth is not None:
        text = _limit("bandwidth", policy.global_bandwidth)
        yield f"POLITENESS_GLOBAL_BANDWIDTH: {text}"
    if check.finding.policy is not None:
        bounds = check.finding.policy.bounds
        text = f"starts at {rate(bounds.start_rate)}"
        if bounds.adaptive:
            text += f", adapts from {rate(bounds.min_rate)} to {rate(bounds.max_rate)}"
        yield text


def _limit(key: str, value: object) -> str:
    if key == "bandwidth" and isinstance(value, float):
        return f"{key} {value / 1e6:.6g} MB/s"
    return f"{key} {value}"


def _learned(check: Check) -> Iterator[str]:
    entry = check.learned and check.learned.entry
    if not entry:
        yield "nothing yet"
        return
    yield from limits(entry.learned)
    yield f"learned {duration(max(0.0, time.time() - entry.at))} ago"


def _speed(check: Check) -> Iterator[str]:
    if (reason := check.why_unlimited) is not None:
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
