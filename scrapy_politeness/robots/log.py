"""What is logged about robots.txt files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_politeness.core.text import duration
from scrapy_politeness.http.names import public

if TYPE_CHECKING:
    from scrapy import Spider

logger = logging.getLogger(__name__)


class RobotsLog:
    def __init__(self, spider: Spider | None) -> None:
        self._log = logging.LoggerAdapter(logger, {"spider": spider})

    def nonsense(self, site: str, line: str) -> None:
        text = "says %(line)r, which makes no sense and is ignored"
        self._write(logging.WARNING, site, text, line=line[:100])

    def delay_reduced(self, site: str, asked: float, delay: float) -> None:
        self._write(
            logging.WARNING,
            site,
            "asks for %(asked).6g s between requests; POLITENESS_ROBOTS_MAX_DELAY "
            "makes it %(delay).6g s",
            asked=asked,
            delay=delay,
        )

    def long_delay(self, site: str, delay: float) -> None:
        self._write(
            logging.WARNING,
            site,
            "asks for %(delay).6g s between requests, so 1,000 pages will take "
            "%(span)s; POLITENESS_ROBOTS_MAX_DELAY would reduce that",
            delay=delay,
            span=duration(1000 * delay),
        )

    def unusable(self, site: str, reason: str) -> None:
        text = "cannot be used (%(reason)s): crawling without its rules"
        self._write(logging.INFO, site, text, reason=reason)

    def goes_without(self, site: str, reason: str, *, obeys: bool) -> None:
        self._write(
            logging.WARNING if obeys else logging.INFO,
            site,
            "is unreachable (%(reason)s): crawling without its rules, since %(why)s. "
            "It will be requested again",
            reason=reason,
            why=(
                "POLITENESS_ROBOTS_UNREACHABLE is 'allow'"
                if obeys
                else "ROBOTSTXT_OBEY is off"
            ),
        )

    def still_applies(self, site: str, reason: str, age: float) -> None:
        self._write(
            logging.INFO,
            site,
            "is unreachable (%(reason)s): the copy from %(age)s ago still applies",
            reason=reason,
            age=duration(age),
        )

    def adopts(self, site: str, reason: str, other: str) -> None:
        text = "is unreachable (%(reason)s): that of %(other)s applies instead"
        self._write(logging.INFO, site, text, reason=reason, other=public(other))

    def reachable_again(self, site: str) -> None:
        self._write(logging.INFO, site, "is reachable again")

    def requests_wait(self, site: str, reason: str, patience: float) -> None:
        self._write(
            logging.WARNING,
            site,
            "is unreachable (%(reason)s): the requests to that host wait while it is "
            "requested again. If it stays unreachable for %(patience)s, they are "
            "dropped, since POLITENESS_ROBOTS_UNREACHABLE is 'disallow'",
            reason=reason,
            patience=duration(patience),
        )

    def disallows(self, site: str, reason: str, seconds: float) -> None:
        self._write(
            logging.WARNING,
            site,
            "has been unreachable for %(span)s (%(reason)s), which means that nothing "
            "may be crawled: dropping the requests to that host. With "
            "POLITENESS_ROBOTS_UNREACHABLE = 'allow', they would be sent",
            span=duration(seconds),
            reason=reason,
        )

    def not_there(self, site: str, reason: str) -> None:
        text = "is unreachable (%(reason)s): the requests to that host fail, too"
        self._write(logging.INFO, site, text, reason=reason)

    def _write(self, level: int, site: str, text: str, **facts: object) -> None:
        facts["site"] = public(site)
        self._log.log(level, f"robots.txt of %(site)s {text}", facts)
