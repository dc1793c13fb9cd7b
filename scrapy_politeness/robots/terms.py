"""What a robots.txt means for the crawl."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.python import to_unicode

from scrapy_politeness.robots.rules import Directives, first_nonsense

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_politeness.config.policy import Policy
    from scrapy_politeness.core.hours import Hours
    from scrapy_politeness.robots.log import RobotsLog

# Seconds. Whoever keeps such a delay for a day gets less than 1,500 pages.
_LONG_DELAY = 60.0


class RobotsTerms(NamedTuple):
    """What a site asks for: seconds between requests, 0 for none, and the hours in
    which to send them. ``since`` is when its robots.txt arrived."""

    delay: float
    since: float
    hours: Hours | None


def user_agent_for(request: Request, policy: Policy) -> str:
    if policy.robots_user_agent:
        return policy.robots_user_agent
    own = request.headers.get("User-Agent") or policy.user_agent
    return to_unicode(own, errors="replace")


def read_terms(
    text: str, site: str, agent: str, policy: Policy, log: RobotsLog, now: float
) -> RobotsTerms | None:
    nonsense = first_nonsense(text)
    if nonsense is not None:
        log.nonsense(site, nonsense)
    asked = Directives.read(text, agent)
    delay = asked.delay_within(policy.robots_max_delay)
    if not delay and asked.hours is None:
        return None
    if asked.delay and delay < asked.delay:
        log.delay_reduced(site, asked.delay, delay)
    elif delay >= _LONG_DELAY:
        log.long_delay(site, delay)
    return RobotsTerms(delay, now, asked.hours)
