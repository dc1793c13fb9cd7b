"""``scrapy politeness check``: how one page would be crawled, and why."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.exceptions import UsageError
from scrapy.utils.url import strip_url

from scrapy_politeness.commands.explanation import lines
from scrapy_politeness.commands.output import CommandError, say, say_json
from scrapy_politeness.commands.probe import Finding, RobotsProbe
from scrapy_politeness.commands.state import Known, open_state, read
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.pace import Limit
from scrapy_politeness.http.names import public

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from scrapy.commands import ScrapyCommand

SUMMARY = "Show how a page would be crawled: robots.txt, settings, learned rates"


@dataclass(frozen=True)
class Check:
    url: str
    policy: Policy
    obeys_robots: bool
    finding: Finding
    known: Known | None

    @property
    def why_free(self) -> str | None:
        """Why the page is not limited; None if it is."""
        if not self.policy.enabled:
            return "POLITENESS_ENABLED is off"
        if self.finding.status is not None:
            return None
        off = self.policy.is_off(self.finding.slot)
        return "its rate or delay is set to 0" if off else "it is in POLITENESS_EXEMPT"

    @property
    def fastest(self) -> float | None:
        """The highest rate that the crawl may reach."""
        own, robots = self.finding.policy, self.finding.robots
        if own is None:
            return None
        delay = robots.wishes.delay if robots and robots.wishes else None
        delay = min(delay or 0.0, self.policy.robots_max_delay)
        shared = [
            limit.interval
            for limit in (self.policy.global_limit, self.policy.ip_limit)
            if limit
        ]
        spacing = max(
            own.spacing, own.floor, *shared, delay if self.policy.robots else 0.0
        )
        return min(own.bounds.max_rate, 1 / spacing) if spacing else own.bounds.max_rate


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL")
    parser.add_argument(
        "--spider", metavar="NAME", help="use the custom_settings of this spider"
    )


def run(command: ScrapyCommand, opts: Namespace) -> int:
    assert command.settings is not None
    spider = _spider(command, opts.spider)
    settings = command.settings.copy()
    spider.update_settings(settings)
    policy = Policy.read(settings)
    finding, known = _crawl(command, opts.url, spider, policy)
    obeys_robots = settings.getbool("ROBOTSTXT_OBEY")
    url = without_credentials(opts.url)
    check = Check(url, policy, obeys_robots, finding, known)
    if opts.json:
        say_json(as_dict(check))
    else:
        say("\n".join(lines(check)))
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
) -> tuple[Finding, Known | None]:
    process = command.crawler_process
    assert process is not None
    findings: list[Finding] = []
    known: list[Known] = []

    def look(slot_key: str) -> None:
        """Before the crawl itself adds to it."""
        path = policy.state_path
        if path is not None and path.is_file():
            with open_state(path) as state:
                known.extend(read(state, [slot_key], time.time()))

    probe = type("Probe", (RobotsProbe,), {"like": spider})
    process.crawl(probe, page=url, look=look, found=findings.append)
    process.start()
    if not findings:
        raise CommandError("cannot fetch robots.txt; see the log")
    return findings[0], known[0] if known else None


def as_dict(check: Check) -> dict[str, Any]:
    finding, policy = check.finding, check.policy
    status = finding.status
    entry = check.known.as_dict(time.time()) if check.known else None
    name = policy.own_limits_of(finding.slot)
    return {
        "url": check.url,
        "slot": finding.slot,
        "unlimited_because": check.why_free,
        "robots": _robots(check),
        "limits": {name: _plain(policy.limits[name])} if name else None,
        "learned": entry if check.known and check.known.entry else None,
        "paused_for": status.paused_for if status else 0.0,
        "rate": status.rate if status else None,
        "fastest_rate": check.fastest,
        "concurrency": status.concurrency if status else None,
    }


def _robots(check: Check) -> dict[str, Any] | None:
    robots = check.finding.robots
    if robots is None:
        return None
    wishes = robots.wishes
    return {
        "url": without_credentials(robots.url),
        "status": robots.status,
        "error": robots.error,
        "user_agent": robots.user_agent,
        "allowed": robots.allowed,
        "obeyed": check.obeys_robots,
        "crawl_delay": wishes.crawl_delay if wishes else None,
        "seconds_per_request": wishes.request_rate if wishes else None,
        "visit_time": str(wishes.hours) if wishes and wishes.hours else None,
        "delays_obeyed": check.policy.robots,
    }


def _plain(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {n: str(v) if isinstance(v, Limit) else v for n, v in limits.items()}
