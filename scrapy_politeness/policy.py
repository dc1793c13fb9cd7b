"""All settings, read once.

The only reader of settings in this package. A wrong value raises PolicyError, which
stops the crawl at start: a mistake in the settings must never mean a crawl without
limits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from scrapy_politeness import rules
from scrapy_politeness.core.governor import Bounds
from scrapy_politeness.core.leases import GRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy import Spider

    from scrapy_politeness.core.pace import Limit

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

# A rate of 0 is not a rate but the switch that turns a slot off.
_RATES = ("start_rate", "max_rate")
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


_REDIS_URL = "POLITENESS_REDIS_URL"
# Whatever stands before the host, or in a password's place, is nobody's business.
_CREDENTIALS = re.compile(r"(?<=//).*(?=@)|(?<=password=)[^&]*")


class PolicyError(ValueError):
    """A setting is wrong; the message names the setting, its value and the rule."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        if name == _REDIS_URL and isinstance(value, str):
            value = _CREDENTIALS.sub("***", value)
        super().__init__(f"{name}={value!r}: {rule}")


@dataclass(frozen=True)
class SlotPolicy:
    """What holds for one download slot; the names are those of Scope."""

    bounds: Bounds
    spacing: float
    concurrency: int
    floor: float = 0.0
    burst: int = 1
    from_finish: bool = False


@dataclass(frozen=True)
class Policy:
    bounds: Bounds
    retry_after_max: float
    http_codes: frozenset[int]
    max_reschedules: int
    robots: bool
    robots_max_delay: float
    robots_user_agent: str | None
    user_agent: str
    exempt: frozenset[str]
    spacing: float
    concurrency: int
    limits: Mapping[str, Mapping[str, Any]]
    global_limit: Limit | None
    ip_limit: Limit | None
    proxy_limit: Limit | None
    max_slots: int
    download_slots: Mapping[str, Mapping[str, Any]]
    jobdir: str | None
    state: str | None
    progress: bool | None
    stats_interval: float
    shows_log: bool
    feeds_stdout: bool
    prometheus_port: int | None
    prometheus_host: str
    report_path: Path | None
    redis_url: str | None

    @classmethod
    def read(cls, settings: BaseSettings, spider: Spider | None = None) -> Policy:
        _reject_unknown_names(settings)
        _reject_autothrottle(settings)
        policy = cls(
            bounds=_bounds(settings),
            retry_after_max=_read(
                settings, "POLITENESS_RETRY_AFTER_MAX", rules.positive
            ),
            http_codes=_read(settings, "POLITENESS_HTTP_CODES", rules.http_codes),
            max_reschedules=_read(settings, "POLITENESS_MAX_RESCHEDULES", rules.count),
            robots=_read(settings, "POLITENESS_ROBOTS", rules.flag),
            robots_max_delay=_read(
                settings, "POLITENESS_ROBOTS_MAX_DELAY", rules.positive
            ),
            robots_user_agent=settings["ROBOTSTXT_USER_AGENT"],
            user_agent=settings["USER_AGENT"],
            exempt=_read(settings, "POLITENESS_EXEMPT", rules.host_names),
            spacing=_spacing(settings, spider),
            concurrency=_concurrency(settings, spider),
            limits=_read(settings, "POLITENESS_LIMITS", _limits),
            global_limit=_read(
                settings, "POLITENESS_GLOBAL_LIMIT", rules.optional_limit
            ),
            ip_limit=_read(settings, "POLITENESS_IP_LIMIT", rules.optional_limit),
            proxy_limit=_read(settings, "POLITENESS_PROXY_LIMIT", rules.optional_limit),
            max_slots=_read(settings, "POLITENESS_MAX_SLOTS", rules.at_least_one),
            download_slots=_read(settings, "DOWNLOAD_SLOTS", _download_slots),
            jobdir=settings["JOBDIR"],
            state=_read(settings, "POLITENESS_STATE", rules.optional_path),
            progress=_read(settings, "POLITENESS_PROGRESS", rules.progress),
            stats_interval=settings.getfloat("LOGSTATS_INTERVAL"),
            shows_log=settings.getbool("LOG_ENABLED"),
            prometheus_port=_read(
                settings, "POLITENESS_PROMETHEUS_PORT", rules.optional_port
            ),
            prometheus_host=_read(
                settings, "POLITENESS_PROMETHEUS_HOST", rules.host_name
            ),
            feeds_stdout=any(_is_stdout(uri) for uri in settings.getdict("FEEDS")),
            report_path=_read(settings, "POLITENESS_REPORT", rules.optional_output),
            redis_url=_read(settings, _REDIS_URL, rules.redis_url),
        )
        if policy.redis_url:
            policy = policy._with_slack(GRACE)
        policy._reject_idle_limits(_raw(settings, "POLITENESS_LIMITS"))
        return policy

    def _with_slack(self, slack: float) -> Policy:
        """Keep to all limits although requests may be so late after their time."""

        def loosened(limit: Limit | None) -> Limit | None:
            return limit and replace(limit, slack=slack)

        limits = {
            key: {**own, "limit": loosened(own["limit"])} if "limit" in own else own
            for key, own in self.limits.items()
        }
        return replace(
            self,
            limits=limits,
            global_limit=loosened(self.global_limit),
            ip_limit=loosened(self.ip_limit),
            proxy_limit=loosened(self.proxy_limit),
        )

    def _reject_idle_limits(self, value: Any) -> None:
        for name in self.limits:
            if name in self.exempt and not self.is_off(name):
                raise PolicyError(
                    "POLITENESS_LIMITS",
                    value,
                    f"the limits of {name!r} have no effect, since POLITENESS_EXEMPT "
                    "has it, too",
                )

    def for_slot(self, key: str) -> SlotPolicy | None:
        """None means switched off: a rate or delay of 0."""
        key = key.lower()
        own = self._own_limits(key)
        slot = self.download_slots.get(key, {})
        if not own and not slot:
            return self._usual
        if self.is_off(key):
            return None
        limit: Limit | None = own.get("limit")
        spacing = slot.get("delay", self.spacing)
        per_domain = slot.get("concurrency", self.concurrency)
        burst = own.get("burst", 1)
        from_finish = own.get("spacing") == "finish"
        return SlotPolicy(
            bounds=_own_bounds(self.bounds, own),
            spacing=max(spacing, limit.interval) if limit else spacing,
            concurrency=1 if from_finish else own.get("concurrency", per_domain),
            floor=_floor(limit, spacing, burst),
            burst=burst,
            from_finish=from_finish,
        )

    def is_off(self, key: str) -> bool:
        if not self.limits and not self.download_slots:
            return False
        own = self._own_limits(key.lower())
        if own:
            # Beside these, a delay of 0 only means that they suffice.
            return any(own.get(name) == 0 for name in _RATES)
        return self.download_slots.get(key.lower(), {}).get("delay") == 0

    def bounds_within(self, limit: Limit) -> Bounds:
        """For what adapts below a limit of the user's, and begins there."""
        rate = 1 / limit.interval
        return _settled(replace(self.bounds, start_rate=rate, max_rate=rate))

    def is_exempt(self, host: str) -> bool:
        host = host.lower()
        if host in self.exempt or not self._exempts_domains:
            return host in self.exempt
        return any(name in self.exempt for name in _names(host))

    @cached_property
    def state_path(self) -> Path | None:
        if self.state:
            return Path(self.state).expanduser().absolute()
        return Path(self.jobdir, "politeness.sqlite") if self.jobdir else None

    def bad_port(self, reason: str) -> PolicyError:
        return PolicyError(
            "POLITENESS_PROMETHEUS_PORT",
            self.prometheus_port,
            "must be a free port of POLITENESS_PROMETHEUS_HOST="
            f"{self.prometheus_host!r}; {reason}",
        )

    def bad_state(self, reason: str) -> PolicyError:
        name, value = (
            ("POLITENESS_STATE", self.state) if self.state else ("JOBDIR", self.jobdir)
        )
        return PolicyError(
            name, value, f"must lead to a state file that can be used; {reason}"
        )

    def bad_redis(self, reason: str) -> PolicyError:
        return PolicyError(_REDIS_URL, self.redis_url, reason)

    @cached_property
    def longest_silence(self) -> float:
        """Whatever anybody says, a host is left alone for no longer at a time."""
        return max(self.retry_after_max, self.bounds.backoff_max)

    @cached_property
    def has_shared_limits(self) -> bool:
        return bool(self.global_limit or self.ip_limit or self.proxy_limit)

    @cached_property
    def _exempts_domains(self) -> bool:
        return any(name.startswith("*.") for name in self.exempt)

    @cached_property
    def _usual(self) -> SlotPolicy:
        """One for all slots that nothing special is said about."""
        return SlotPolicy(self.bounds, self.spacing, self.concurrency)

    def own_limits_of(self, key: str) -> str | None:
        """Return which entry of POLITENESS_LIMITS a slot has its limits from. The most
        specific one wins: the host itself, else the longest domain."""
        if not self.limits:
            return None
        return next((name for name in _names(key) if name in self.limits), None)

    def _own_limits(self, key: str) -> Mapping[str, Any]:
        name = self.own_limits_of(key)
        return {} if name is None else self.limits[name]


def _floor(limit: Limit | None, spacing: float, burst: int) -> float:
    if burst > 1:
        return spacing  # no burst makes a delay of the user's own any shorter
    return limit.floor if limit is not None else 0.0


def _names(host: str) -> Iterator[str]:
    """Under which names a setting may mean this host, the most specific first."""
    yield host
    domain = host
    while "." in domain:
        _, domain = domain.split(".", 1)
        yield "*." + domain


def is_enabled(settings: BaseSettings) -> bool:
    return _read(settings, "POLITENESS_ENABLED", rules.flag)


def _read(settings: BaseSettings, name: str, rule: Callable[[Any], _T]) -> _T:
    return _check(name, _raw(settings, name), rule)


def _raw(settings: BaseSettings, name: str) -> Any:
    value = settings.get(name, DEFAULTS.get(name))
    return value.copy_to_dict() if isinstance(value, BaseSettings) else value


def _check(name: str, value: Any, rule: Callable[[Any], _T]) -> _T:
    try:
        return rule(value)
    except ValueError as error:
        raise PolicyError(name, value, str(error)) from None


def _reject_unknown_names(settings: BaseSettings) -> None:
    for name in settings:
        if str(name).startswith("POLITENESS_") and name not in DEFAULTS:
            close = get_close_matches(str(name), DEFAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise PolicyError(
                str(name), settings[name], f"there is no such setting{hint}"
            )


def _reject_autothrottle(settings: BaseSettings) -> None:
    if settings.getbool("AUTOTHROTTLE_ENABLED"):
        raise PolicyError(
            "AUTOTHROTTLE_ENABLED",
            settings["AUTOTHROTTLE_ENABLED"],
            "must be off beside scrapy-politeness, which adapts the rate itself; "
            "remove this setting",
        )


def _bounds(settings: BaseSettings) -> Bounds:
    low = _read(settings, "POLITENESS_MIN_RATE", rules.positive)
    high = _read(settings, "POLITENESS_MAX_RATE", rules.positive)
    base = _read(settings, "POLITENESS_BACKOFF_BASE", rules.positive)
    longest = _read(settings, "POLITENESS_BACKOFF_MAX", rules.positive)
    for name, value, other, most in (
        ("POLITENESS_MIN_RATE", low, "POLITENESS_MAX_RATE", high),
        ("POLITENESS_BACKOFF_BASE", base, "POLITENESS_BACKOFF_MAX", longest),
    ):
        if value > most:
            raise PolicyError(
                name, _raw(settings, name), f"must not exceed {other}={most!r}"
            )
    return _settled(
        Bounds(
            start_rate=_read(settings, "POLITENESS_START_RATE", rules.positive),
            min_rate=low,
            max_rate=high,
            decrease_factor=_read(
                settings, "POLITENESS_DECREASE_FACTOR", rules.fraction
            ),
            raise_after=_read(settings, "POLITENESS_RAISE_AFTER", rules.at_least_one),
            backoff_base=base,
            backoff_max=longest,
            longest_pause=_read(settings, "POLITENESS_RETRY_AFTER_MAX", rules.positive),
        )
    )


def _own_bounds(bounds: Bounds, own: Mapping[str, Any]) -> Bounds:
    if limit := own.get("limit"):
        # Who names a limit means it to be used, also above POLITENESS_MAX_RATE.
        bounds = replace(bounds, max_rate=1 / limit.interval)
        if not own.get("adaptive", True):
            bounds = replace(bounds, start_rate=bounds.max_rate)
    names = ("start_rate", "min_rate", "max_rate", "adaptive")
    return _settled(replace(bounds, **{n: own[n] for n in names if n in own}))


def _settled(bounds: Bounds) -> Bounds:
    """Of two bounds that disagree, the slower one holds."""
    start = min(bounds.start_rate, bounds.max_rate)
    return replace(bounds, start_rate=start, min_rate=min(bounds.min_rate, start))


def _limits(value: Any) -> dict[str, dict[str, Any]]:
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


def _download_slots(value: Any) -> dict[str, dict[str, Any]]:
    """Scrapy's own setting: of its keys, the two that are about limits."""
    return {
        key: rules.row(
            key, {n: v for n, v in values.items() if n in _SLOT_RULES}, _SLOT_RULES
        )
        for key, values in rules.table(value).items()
    }


def _spacing(settings: BaseSettings, spider: Spider | None) -> float:
    name = "DOWNLOAD_DELAY"
    value = _attribute_or_setting(settings, spider, "download_delay", name)
    return _check(name, value, rules.not_negative)


def _concurrency(settings: BaseSettings, spider: Spider | None) -> int:
    name = "CONCURRENT_REQUESTS_PER_DOMAIN"
    if settings.getint("CONCURRENT_REQUESTS_PER_IP", 0):
        name = "CONCURRENT_REQUESTS_PER_IP"
    value = _attribute_or_setting(settings, spider, "max_concurrent_requests", name)
    return _check(name, value, rules.at_least_one)


def _is_stdout(uri: Any) -> bool:
    return str(uri) == "-" or str(uri).startswith("stdout:")


def _attribute_or_setting(
    settings: BaseSettings, spider: Spider | None, attribute: str, name: str
) -> Any:
    """Older Scrapy lets the spider's attribute win; newer ones copy it into the
    setting, unless that was set for the spider or on the command line."""
    if (settings.getpriority(name) or 0) < SETTINGS_PRIORITIES["spider"]:
        return getattr(spider, attribute, settings[name])
    return settings[name]
