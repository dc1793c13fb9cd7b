"""POLITENESS_REFUSALS: which responses mean "too fast" or "not welcome"."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from scrapy_politeness.config import rules
from scrapy_politeness.config.slots import Key, names
from scrapy_politeness.core.text import escaped

_EXAMPLE = '[{"host": "example.org", "body": "unusual traffic", "means": "too fast"}]'

# A rule with none of these would apply to every page.
_CONDITIONS = ("status", "header", "url", "redirect", "body")


class Meaning(Enum):
    TOO_FAST = "too fast"
    NOT_WELCOME = "not welcome"
    PAGE = "page"


def _meaning(value: Any) -> Meaning:
    try:
        return Meaning(value)
    except ValueError:
        raise ValueError('must be "too fast", "not welcome" or "page"') from None


def _statuses(value: Any) -> frozenset[int]:
    rule = "must be an HTTP status code from 200 to 599, or a list of them"
    codes = value if isinstance(value, list | tuple) else [value]
    if not codes or not all(type(c) is int and 200 <= c <= 599 for c in codes):
        raise ValueError(rule)
    return frozenset(codes)


def _hosts(value: Any) -> frozenset[str]:
    hosts = rules.host_names(value)
    if not hosts:
        raise ValueError("must name a host")
    return hosts


def _pattern(value: Any) -> re.Pattern[str]:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a regular expression")
    try:
        return re.compile(value, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        reason = escaped(str(error))
        raise ValueError(f"must be a regular expression; {reason}") from None


def _header(value: Any) -> tuple[str, re.Pattern[str]]:
    name, _, pattern = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not re.fullmatch(r"[!#$%&'*+.^_`|~\w-]+", name, re.ASCII):
        raise ValueError(
            "must be the name of a header, or name and pattern, such as "
            '"Server: ddos-guard"'
        )
    return name, _pattern(pattern.strip() or ".*")


# fmt: off
KEYS: Mapping[str, Key] = {
    "means": Key(_meaning,
        'required: `"too fast"`, `"not welcome"`, or `"page"` for what only looks like '
        "a refusal"),
    "wait": Key(rules.not_negative,
        'with `"too fast"`: seconds to pause, if there is no Retry-After'),
    "host": Key(_hosts,
        'a host, `"*.example.org"` for subdomains, or a list; all hosts by default'),
    "status": Key(_statuses, "a status code, or a list"),
    "header": Key(_header,
        'the name of a header, or name and pattern, such as `"Server: ddos-guard"`'),
    "url": Key(_pattern, "a pattern, searched for in the URL that was requested"),
    "redirect": Key(_pattern,
        "a pattern, searched for in the URL that the response redirects to"),
    "body": Key(_pattern,
        "a pattern, searched for in the first 32 KiB of a text"),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Rule:
    """All conditions that are not None must hold. ``name`` is for people."""

    name: str
    means: Meaning
    wait: float | None = None
    host: frozenset[str] | None = None
    status: frozenset[int] | None = None
    header: tuple[str, re.Pattern[str]] | None = None
    url: re.Pattern[str] | None = None
    redirect: re.Pattern[str] | None = None
    body: re.Pattern[str] | None = None

    def is_for(self, host: str) -> bool:
        return self.host is None or any(name in self.host for name in names(host))


def refusal_rules(value: Any) -> tuple[Rule, ...]:
    form = f"must be a list of dicts, or JSON, such as {_EXAMPLE}"
    try:
        items = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError(form) from None
    if not isinstance(items, list | tuple):
        raise ValueError(form)
    return tuple(_rule(n, item, form) for n, item in enumerate(items, 1))


def _rule(number: int, item: Any, form: str) -> Rule:
    name = f"rule {number}"
    if not isinstance(item, Mapping):
        raise ValueError(form)
    checked: dict[str, Any] = {}
    for key, value in item.items():
        if key not in KEYS:
            known = ", ".join(KEYS)
            raise ValueError(f"{name} has an unknown key {key!r}; known keys: {known}")
        rule: Callable[[Any], Any] = KEYS[key].rule
        try:
            checked[key] = rule(value)
        except ValueError as error:
            raise ValueError(f"{key}={value!r} of {name} {error}") from None
    if "means" not in checked:
        raise ValueError(f"{name} needs {'means'!r}: what such a response means")
    if not any(key in checked for key in _CONDITIONS):
        conditions = ", ".join(_CONDITIONS)
        raise ValueError(f"{name} would apply to every page; add one of {conditions}")
    if "wait" in checked and checked["means"] is not Meaning.TOO_FAST:
        raise ValueError(f"wait of {name} needs {'too fast'!r} as its meaning")
    return Rule(name, **checked)
