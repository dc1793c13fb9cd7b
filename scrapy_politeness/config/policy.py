"""The settings, read once, and what they mean for each slot."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_politeness.config import slots
from scrapy_politeness.config.settings import (
    PolicyError,
    check,
    raw,
    read_concurrency,
    read_spacing,
    reject_scrapys,
    reject_unknown_names,
)
from scrapy_politeness.config.slots import Limits, SlotPolicy
from scrapy_politeness.config.table import ROWS, SETTINGS, Table
from scrapy_politeness.core.governor.bounds import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Spider
    from scrapy.settings import BaseSettings

    from scrapy_politeness.core.pace import Limit

logger = logging.getLogger(__name__)

_BOUNDS = (
    *("start_rate", "min_rate", "max_rate", "decrease_factor", "raise_after"),
    *("backoff_base", "backoff_max"),
)
# A rate of 0 is not a rate but the switch that turns a slot off.
_RATES = ("start_rate", "max_rate")


@dataclass(frozen=True, kw_only=True)
class Policy(Table):
    """The settings of this package, and those of Scrapy's that it needs."""

    # Scrapy's own.
    spacing: float
    concurrency: int
    download_slots: Limits
    obeys_robots: bool
    robots_user_agent: str | None
    user_agent: str
    jobdir: str | None
    stats_interval: float
    shows_log: bool
    feeds_stdout: bool

    @classmethod
    def read(cls, settings: BaseSettings, spider: Spider | None = None) -> Policy:
        reject_unknown_names(settings, SETTINGS)
        reject_scrapys(settings)
        policy = cls(
            **{name: row.read(settings) for name, row in ROWS.items()},
            spacing=read_spacing(settings, spider),
            concurrency=read_concurrency(settings, spider),
            download_slots={
                slot: entry
                for name in ("DOWNLOAD_SLOTS", "THROTTLING_SCOPES")
                for slot, entry in check(
                    name, raw(settings, name) or {}, slots.download_slots
                ).items()
            },
            obeys_robots=settings.getbool("ROBOTSTXT_OBEY"),
            robots_user_agent=settings["ROBOTSTXT_USER_AGENT"],
            user_agent=settings["USER_AGENT"],
            jobdir=settings["JOBDIR"],
            stats_interval=settings.getfloat("LOGSTATS_INTERVAL"),
            shows_log=settings.getbool("LOG_ENABLED"),
            feeds_stdout=any(
                str(uri) == "-" or str(uri).startswith("stdout:")
                for uri in settings.getdict("FEEDS")
            ),
        )
        policy._reject_contradictions(settings)
        return policy._with_slack() if policy.redis_url else policy

    def _reject_contradictions(self, settings: BaseSettings) -> None:
        for lower, upper in (("min_rate", "max_rate"), ("backoff_base", "backoff_max")):
            name, other = ROWS[lower].name, ROWS[upper].name
            if getattr(self, lower) > (most := getattr(self, upper)):
                rule = f"must not exceed {other}={most!r}"
                raise PolicyError(name, raw(settings, name), rule)
        if self.start_rate > self.max_rate and "POLITENESS_START_RATE" in settings:
            logger.warning(
                "POLITENESS_START_RATE=%(start).6g exceeds "
                "POLITENESS_MAX_RATE=%(high).6g, so slots start at the latter",
                {"start": self.start_rate, "high": self.max_rate},
            )
        if self.group_by == "domain" and settings.getint("CONCURRENT_REQUESTS_PER_IP"):
            raise self.error(
                "group_by",
                "cannot be combined with CONCURRENT_REQUESTS_PER_IP, which makes a "
                "slot of each address",
            )
        for refusal in self.refusals:
            if refusal.wait is not None and refusal.wait > self.retry_after_max:
                raise PolicyError(
                    "POLITENESS_REFUSALS",
                    raw(settings, "POLITENESS_REFUSALS"),
                    f"wait of {refusal.name} must not exceed "
                    f"POLITENESS_RETRY_AFTER_MAX={self.retry_after_max!r}",
                )
        for name in self.limits:
            if name in self.exempt and not self.is_off(name):
                raise PolicyError(
                    "POLITENESS_LIMITS",
                    raw(settings, "POLITENESS_LIMITS"),
                    f"the limits for {name!r} have no effect, since it is also in "
                    "POLITENESS_EXEMPT",
                )

    def _with_slack(self) -> Policy:
        """Keep to all limits and delays although other processes may send a little
        late."""
        return replace(
            self,
            limits=slots.with_slack(self.limits),
            download_slots=slots.with_slack(self.download_slots),
            spacing=slots.longer(self.spacing),
            global_limit=slots.slackened(self.global_limit),
            ip_limit=slots.slackened(self.ip_limit),
            proxy_limit=slots.slackened(self.proxy_limit),
        )

    @cached_property
    def bounds(self) -> Bounds:
        own = {name: getattr(self, name) for name in _BOUNDS}
        return slots.consistent(Bounds(**own, longest_pause=self.retry_after_max))

    def for_slot(self, key: str) -> SlotPolicy | None:
        """Return None for a slot that is not limited: a rate or delay of 0."""
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
            bounds=slots.own_bounds(self.bounds, own),
            spacing=max(spacing, limit.interval) if limit else spacing,
            concurrency=1 if from_finish else own.get("concurrency", per_domain),
            floor=slots.floor(limit, spacing, burst),
            burst=burst,
            windows=limit.windows if limit else (),
            from_finish=from_finish,
            bandwidth=own.get("bandwidth"),
            shares_concurrency="concurrency" in own,
        )

    def has_own_limits(self, key: str) -> bool:
        """Tell whether the settings have limits for this slot in particular."""
        key = key.lower()
        return key in self.download_slots or self.own_limits_of(key) is not None

    def is_off(self, key: str) -> bool:
        if not self.limits and not self.download_slots:
            return False
        own = self._own_limits(key.lower())
        if own:
            # Next to these, a delay of 0 only means that they suffice.
            return any(own.get(name) == 0 for name in _RATES)
        return self.download_slots.get(key.lower(), {}).get("delay") == 0

    def bounds_within(self, limit: Limit) -> Bounds:
        """For what starts at a limit of the user's, and adapts below it."""
        rate = 1 / limit.interval
        return slots.consistent(replace(self.bounds, start_rate=rate, max_rate=rate))

    def is_exempt(self, host: str) -> bool:
        host = host.lower()
        if host in self.exempt or not self._exempts_domains:
            return host in self.exempt
        return any(name in self.exempt for name in slots.names(host))

    @cached_property
    def state_path(self) -> Path | None:
        if self.state:
            return Path(self.state).expanduser().absolute()
        return Path(self.jobdir, "politeness.sqlite") if self.jobdir else None

    @cached_property
    def report_of_job(self) -> Path | None:
        """Where a job keeps what its report needs of earlier runs."""
        return Path(self.jobdir, "politeness-report.json") if self.jobdir else None

    def error(self, field: str, rule: str) -> PolicyError:
        """For what only shows when a setting is used."""
        return PolicyError(ROWS[field].name, getattr(self, field), rule)

    def bad_state(self, reason: str) -> PolicyError:
        rule = f"must lead to a usable state file; {reason}"
        if self.state:
            return self.error("state", rule)
        return PolicyError("JOBDIR", self.jobdir, rule)

    @cached_property
    def longest_pause(self) -> float:
        """No pause is longer, whatever a host or another process says."""
        return max(self.retry_after_max, self.backoff_max)

    @property
    def disallows_unreachable(self) -> bool:
        """Tell whether nothing may be crawled where robots.txt is unreachable."""
        return self.obeys_robots and self.robots_unreachable == "disallow"

    @cached_property
    def has_shared_limits(self) -> bool:
        return bool(
            self.global_limit
            or self.global_bandwidth
            or self.ip_limit
            or self.proxy_limit
            or self.slots
            or self.group_by != "host"
            or (self.redis_url and self.has_windows)
        )

    @cached_property
    def has_windows(self) -> bool:
        """Tell whether several limits apply at once anywhere."""
        own = (entry.get("limit") for entry in self.limits.values())
        limits = (self.global_limit, self.ip_limit, self.proxy_limit, *own)
        return any(limit is not None and limit.longer for limit in limits)

    @cached_property
    def counts_bytes(self) -> bool:
        return self.global_bandwidth is not None or any(
            "bandwidth" in own for own in self.limits.values()
        )

    @cached_property
    def _exempts_domains(self) -> bool:
        return any(name.startswith("*.") for name in self.exempt)

    @cached_property
    def _usual(self) -> SlotPolicy:
        """For all slots without limits of their own."""
        return SlotPolicy(self.bounds, self.spacing, self.concurrency)

    def own_limits_of(self, key: str) -> str | None:
        """Return which entry of POLITENESS_LIMITS applies to a slot: the host itself,
        else the longest domain."""
        if not self.limits:
            return None
        return next((name for name in slots.names(key) if name in self.limits), None)

    def _own_limits(self, key: str) -> Mapping[str, Any]:
        name = self.own_limits_of(key)
        return {} if name is None else self.limits[name]
