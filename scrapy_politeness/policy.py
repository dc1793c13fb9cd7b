"""All settings, read once, and what follows from them for each slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_politeness import rules
from scrapy_politeness import settings as reader
from scrapy_politeness.core.leases import grace
from scrapy_politeness.settings import REDIS_URL, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy import Spider
    from scrapy.settings import BaseSettings

    from scrapy_politeness.core.governor import Bounds
    from scrapy_politeness.core.pace import Limit

# A rate of 0 is not a rate but the switch that turns a slot off.
_RATES = ("start_rate", "max_rate")


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
    give_up_after: float
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
        reader.reject_unknown_names(settings)
        reader.reject_autothrottle(settings)
        reader.reject_no_requests(settings)
        policy = cls(
            bounds=reader.read_bounds(settings),
            retry_after_max=reader.read(
                settings, "POLITENESS_RETRY_AFTER_MAX", rules.positive
            ),
            http_codes=reader.read(settings, "POLITENESS_HTTP_CODES", rules.http_codes),
            max_reschedules=reader.read(
                settings, "POLITENESS_MAX_RESCHEDULES", rules.count
            ),
            give_up_after=reader.read(
                settings, "POLITENESS_GIVE_UP_AFTER", rules.not_negative
            ),
            robots=reader.read(settings, "POLITENESS_ROBOTS", rules.flag),
            robots_max_delay=reader.read(
                settings, "POLITENESS_ROBOTS_MAX_DELAY", rules.positive
            ),
            robots_user_agent=settings["ROBOTSTXT_USER_AGENT"],
            user_agent=settings["USER_AGENT"],
            exempt=reader.read(settings, "POLITENESS_EXEMPT", rules.host_names),
            spacing=reader.read_spacing(settings, spider),
            concurrency=reader.read_concurrency(settings, spider),
            limits=reader.read(settings, "POLITENESS_LIMITS", reader.limits),
            global_limit=reader.read(
                settings, "POLITENESS_GLOBAL_LIMIT", rules.optional_limit
            ),
            ip_limit=reader.read(settings, "POLITENESS_IP_LIMIT", rules.optional_limit),
            proxy_limit=reader.read(
                settings, "POLITENESS_PROXY_LIMIT", rules.optional_limit
            ),
            max_slots=reader.read(settings, "POLITENESS_MAX_SLOTS", rules.at_least_one),
            download_slots=reader.read(
                settings, "DOWNLOAD_SLOTS", reader.download_slots
            ),
            jobdir=settings["JOBDIR"],
            state=reader.read(settings, "POLITENESS_STATE", rules.optional_path),
            progress=reader.read(settings, "POLITENESS_PROGRESS", rules.progress),
            stats_interval=settings.getfloat("LOGSTATS_INTERVAL"),
            shows_log=settings.getbool("LOG_ENABLED"),
            prometheus_port=reader.read(
                settings, "POLITENESS_PROMETHEUS_PORT", rules.optional_port
            ),
            prometheus_host=reader.read(
                settings, "POLITENESS_PROMETHEUS_HOST", rules.host_name
            ),
            feeds_stdout=any(
                reader.is_stdout(uri) for uri in settings.getdict("FEEDS")
            ),
            report_path=reader.read(
                settings, "POLITENESS_REPORT", rules.optional_output
            ),
            redis_url=reader.read(settings, REDIS_URL, rules.redis_url),
        )
        if policy.redis_url:
            policy = policy._with_slack()
        policy._reject_idle_limits(reader.raw(settings, "POLITENESS_LIMITS"))
        return policy

    def _with_slack(self) -> Policy:
        """Keep to all limits and delays although requests of several processes may go
        a little after their time."""
        limits = {
            key: {**own, "limit": _with_slack(own["limit"])} if "limit" in own else own
            for key, own in self.limits.items()
        }
        slots = {
            key: {**own, "delay": _longer(own["delay"])} if "delay" in own else own
            for key, own in self.download_slots.items()
        }
        return replace(
            self,
            limits=limits,
            download_slots=slots,
            spacing=_longer(self.spacing),
            global_limit=_with_slack(self.global_limit),
            ip_limit=_with_slack(self.ip_limit),
            proxy_limit=_with_slack(self.proxy_limit),
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
        return reader.settled(replace(self.bounds, start_rate=rate, max_rate=rate))

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
        return PolicyError(REDIS_URL, self.redis_url, reason)

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


def _with_slack(limit: Limit | None) -> Limit | None:
    return limit and replace(limit, slack=grace(limit.interval))


def _longer(delay: float) -> float:
    return delay + grace(delay) if delay else 0.0


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


def _own_bounds(bounds: Bounds, own: Mapping[str, Any]) -> Bounds:
    if limit := own.get("limit"):
        # Who names a limit means it to be used, also above POLITENESS_MAX_RATE.
        bounds = replace(bounds, max_rate=1 / limit.interval)
        if not own.get("adaptive", True):
            bounds = replace(bounds, start_rate=bounds.max_rate)
    names = ("start_rate", "min_rate", "max_rate", "adaptive")
    return reader.settled(replace(bounds, **{n: own[n] for n in names if n in own}))
