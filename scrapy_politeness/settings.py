"""The settings: their defaults, and how each of them is read.

Here and in ``policy.py``, which makes one object of them all, is the only place in this
package that reads settings. A wrong value raises PolicyError, which stops the crawl at
start: a mistake in the settings must never mean a crawl without limits.
"""

from __future__ import annotations

import logging
import math
import re
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import scrapy
from scrapy.core.scheduler import Scheduler
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.misc import load_object

from scrapy_politeness import job, rules
from scrapy_politeness.core.governor import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy import Spider

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

DEFAULTS: dict[str, Any] = {
    "POLITENESS_ENABLED": True,
    "POLITENESS_START_RATE": 1.0,
    "POLITENESS_MIN_RATE": 0.1,
    "POLITENESS_MAX_RATE": 10.0,
    "POLITENESS_DECREASE_FACTOR": 0.5,
    "POLITENESS_RAISE_AFTER": 10,
    "POLITENESS_BACKOFF_BASE": 5.0,
    "POLITENESS_BACKOFF_MAX": 300.0,
    "POLITENESS_RETRY_AFTER_MAX": 3600.0,
    "POLITENESS_HTTP_CODES": [429, 503],
    "POLITENESS_MAX_RESCHEDULES": 20,
    "POLITENESS_GIVE_UP_AFTER": 86400.0,
    "POLITENESS_ROBOTS": True,
    "POLITENESS_ROBOTS_MAX_DELAY": 300.0,
    "POLITENESS_LIMITS": {},
    "POLITENESS_GLOBAL_LIMIT": None,
    "POLITENESS_IP_LIMIT": None,
    "POLITENESS_PROXY_LIMIT": None,
    "POLITENESS_MAX_SLOTS": 10_000,
    "POLITENESS_EXEMPT": ["localhost", "127.0.0.1", "::1"],
    "POLITENESS_STATE": None,
    "POLITENESS_PROGRESS": None,
    "POLITENESS_PROMETHEUS_PORT": None,
    "POLITENESS_PROMETHEUS_HOST": "127.0.0.1",
    "POLITENESS_REPORT": None,
    "POLITENESS_REDIS_URL": None,
}

_LIMIT_RULES: dict[str, rules.Rule] = {
    "limit": rules.limit,
    "burst": rules.at_least_one,
    "spacing": rules.spacing,
    "start_rate": rules.not_negative,
    "min_rate": rules.positive,
    "max_rate": rules.not_negative,
    "concurrency": rules.at_least_one,
    "adaptive": rules.flag,
}
_SLOT_RULES: dict[str, rules.Rule] = {
    "delay": rules.not_negative,
    "concurrency": rules.at_least_one,
}


PREFIX = "POLITENESS_"
REDIS_URL = "POLITENESS_REDIS_URL"
# Whatever stands before the host, or in a password's place, is nobody's business.
_PASSWORD = re.compile(r"(?<=password=)[^&]*")
_BEFORE_HOST = re.compile(r"^('[\w+]*:/*)?.*(?=@)", re.S)


class PolicyError(ValueError):
    """A setting is wrong; the message names the setting, its value and the rule."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(f"{name}={_shown(name, value)}: {rule}")


def _shown(name: str, value: object) -> str:
    """A setting that nobody knows may be a misspelt one with a password."""
    text = repr(value)
    if name != REDIS_URL and (name in DEFAULTS or not name.startswith(PREFIX)):
        return text
    return _BEFORE_HOST.sub(r"\1***", _PASSWORD.sub("***", text))


@contextmanager
def told(spider: Spider | None = None) -> Iterator[None]:
    """Say in one line what is wrong: Scrapy hides it below a long traceback."""
    try:
        yield
    except PolicyError as error:
        logger.critical(
            "The crawl does not start: %(error)s",
            {"error": error},
            extra={"spider": spider},
        )
        raise


def is_enabled(settings: BaseSettings) -> bool:
    return read(settings, "POLITENESS_ENABLED", rules.flag)


def read(settings: BaseSettings, name: str, rule: Callable[[Any], _T]) -> _T:
    return check(name, raw(settings, name), rule)


def raw(settings: BaseSettings, name: str) -> Any:
    value = settings.get(name, DEFAULTS.get(name))
    return value.copy_to_dict() if isinstance(value, BaseSettings) else value


def check(name: str, value: Any, rule: Callable[[Any], _T]) -> _T:
    try:
        return rule(value)
    except ValueError as error:
        raise PolicyError(name, value, str(error)) from None


def reject_unknown_names(settings: BaseSettings) -> None:
    for name in settings:
        if str(name).startswith(PREFIX) and name not in DEFAULTS:
            close = get_close_matches(str(name), DEFAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise PolicyError(
                str(name), settings[name], f"there is no such setting{hint}"
            )


def reject_autothrottle(settings: BaseSettings) -> None:
    if settings.getbool("AUTOTHROTTLE_ENABLED"):
        raise PolicyError(
            "AUTOTHROTTLE_ENABLED",
            settings["AUTOTHROTTLE_ENABLED"],
            "must be off beside scrapy-politeness, which adapts the rate itself; "
            "remove this setting",
        )


def reject_no_requests(settings: BaseSettings) -> None:
    """Newer Scrapy takes 0 for no limit; older ones would wait forever."""
    name = "CONCURRENT_REQUESTS"
    if scrapy.version_info < (2, 18):
        read(settings, name, rules.at_least_one)


def reject_job_of_others(settings: BaseSettings) -> None:
    """Before Scrapy opens the job, and writes over what it could be resumed with."""
    if _is_polite(settings) and job.has_requests_of_others(settings["JOBDIR"]):
        raise PolicyError(
            "JOBDIR",
            settings["JOBDIR"],
            "its requests were put there by another SCHEDULER_PRIORITY_QUEUE than "
            "scrapy_politeness.PolitePriorityQueue; only the queue that a job was "
            "begun with can resume it",
        )


def reject_own_job(settings: BaseSettings) -> None:
    """The other way round, when the add-on is off."""
    if _has_job(settings) and job.has_requests_of_ours(settings["JOBDIR"]):
        raise PolicyError(
            "POLITENESS_ENABLED",
            settings["POLITENESS_ENABLED"],
            f"the job in JOBDIR={settings['JOBDIR']!r} was begun with "
            "scrapy-politeness on, and only so can it be resumed",
        )


def _is_polite(settings: BaseSettings) -> bool:
    queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
    return _has_job(settings) and getattr(queue, "signature", None) is job.SIGNATURE


def _has_job(settings: BaseSettings) -> bool:
    """Other schedulers than Scrapy's may have their requests elsewhere."""
    scheduler = load_object(settings["SCHEDULER"])
    return bool(settings["JOBDIR"]) and issubclass(scheduler, Scheduler)


def read_bounds(settings: BaseSettings) -> Bounds:
    low = read(settings, "POLITENESS_MIN_RATE", rules.positive)
    high = read(settings, "POLITENESS_MAX_RATE", rules.positive)
    base = read(settings, "POLITENESS_BACKOFF_BASE", rules.positive)
    longest = read(settings, "POLITENESS_BACKOFF_MAX", rules.positive)
    for name, value, other, most in (
        ("POLITENESS_MIN_RATE", low, "POLITENESS_MAX_RATE", high),
        ("POLITENESS_BACKOFF_BASE", base, "POLITENESS_BACKOFF_MAX", longest),
    ):
        if value > most:
            raise PolicyError(
                name, raw(settings, name), f"must not exceed {other}={most!r}"
            )
    start = read(settings, "POLITENESS_START_RATE", rules.positive)
    if start > high and "POLITENESS_START_RATE" in settings:
        logger.warning(
            "POLITENESS_START_RATE=%(start).6g exceeds POLITENESS_MAX_RATE=%(high).6g, "
            "at which slots start instead",
            {"start": start, "high": high},
        )
    return settled(
        Bounds(
            start_rate=start,
            min_rate=low,
            max_rate=high,
            decrease_factor=read(
                settings, "POLITENESS_DECREASE_FACTOR", rules.fraction
            ),
            raise_after=read(settings, "POLITENESS_RAISE_AFTER", rules.at_least_one),
            backoff_base=base,
            backoff_max=longest,
            longest_pause=read(settings, "POLITENESS_RETRY_AFTER_MAX", rules.positive),
        )
    )


def settled(bounds: Bounds) -> Bounds:
    """Of two bounds that disagree, the slower one holds."""
    start = min(bounds.start_rate, bounds.max_rate)
    return replace(bounds, start_rate=start, min_rate=min(bounds.min_rate, start))


def limits(value: Any) -> dict[str, dict[str, Any]]:
    limits = {
        rules.slot_name(key): rules.row(key, values, _LIMIT_RULES)
        for key, values in rules.table(value).items()
    }
    for key, own in limits.items():
        if 0 < own.get("max_rate", math.inf) < own.get("min_rate", 0):
            raise ValueError(
                f"min_rate={own['min_rate']!r} of {key!r} must not exceed its max_rate"
            )
        if own.get("spacing") == "finish":
            for name in ("burst", "concurrency"):
                if own.get(name, 1) > 1:
                    raise ValueError(
                        f"{name}={own[name]!r} of {key!r} makes no sense beside "
                        'spacing="finish", which sends one at a time'
                    )
    return limits


def download_slots(value: Any) -> dict[str, dict[str, Any]]:
    """Scrapy's own setting: of its keys, the two that are about limits."""
    return {
        key: rules.row(
            key, {n: v for n, v in values.items() if n in _SLOT_RULES}, _SLOT_RULES
        )
        for key, values in rules.table(value).items()
    }


def read_spacing(settings: BaseSettings, spider: Spider | None) -> float:
    name = "DOWNLOAD_DELAY"
    value = _attribute_or_setting(settings, spider, "download_delay", name)
    return check(name, value, rules.not_negative)


def read_concurrency(settings: BaseSettings, spider: Spider | None) -> int:
    name = "CONCURRENT_REQUESTS_PER_DOMAIN"
    if settings.getint("CONCURRENT_REQUESTS_PER_IP", 0):
        name = "CONCURRENT_REQUESTS_PER_IP"
    value = _attribute_or_setting(settings, spider, "max_concurrent_requests", name)
    return check(name, value, rules.at_least_one)


def is_stdout(uri: Any) -> bool:
    return str(uri) == "-" or str(uri).startswith("stdout:")


def _attribute_or_setting(
    settings: BaseSettings, spider: Spider | None, attribute: str, name: str
) -> Any:
    """Older Scrapy lets the spider's attribute win; newer ones copy it into the
    setting, unless that was set for the spider or on the command line."""
    if (settings.getpriority(name) or 0) < SETTINGS_PRIORITIES["spider"]:
        return getattr(spider, attribute, settings[name])
    return settings[name]
