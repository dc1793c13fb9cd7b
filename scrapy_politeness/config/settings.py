"""How a setting is declared, read and checked.

A wrong value raises PolicyError, which stops the crawl at start: a mistake in the
settings must never mean a crawl without limits.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import scrapy
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from scrapy_politeness.config import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy import Spider

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

PREFIX = "POLITENESS_"

# A URL may hold a password, in front of its host or as an argument.
_PASSWORD = re.compile(r"(?<=password=)[^&]*")
_BEFORE_HOST = re.compile(r"^('[\w+]*:/*)?.*(?=@)", re.S)


class PolicyError(ValueError):
    """A setting is wrong; the message names the setting, its value and the rule."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        shown = repr(value)
        if name.startswith(PREFIX):  # misspelt ones included
            shown = _BEFORE_HOST.sub(r"\1***", _PASSWORD.sub("***", shown))
        super().__init__(f"{name}={shown}: {rule}")


class Setting(NamedTuple):
    """``meaning`` is Markdown, for docs/reference.md."""

    name: str
    default: Any
    rule: Callable[[Any], Any]
    meaning: str

    def read(self, settings: BaseSettings) -> Any:
        return check(self.name, raw(settings, self.name, self.default), self.rule)


def setting(name: str, default: object, rule: Callable[[Any], _T], meaning: str) -> _T:
    """Declare a setting as a field of a dataclass."""
    row = Setting(name, default, rule, meaning)
    return field(metadata={Setting: row})  # type: ignore[no-any-return]


def declared(table: Any) -> dict[str, Setting]:
    """Return the settings of such a dataclass, by their fields."""
    rows = ((f.name, f.metadata.get(Setting)) for f in fields(table))
    return {name: row for name, row in rows if row is not None}


@contextmanager
def errors_logged(spider: Spider | None = None) -> Iterator[None]:
    """Log a wrong setting in one line; Scrapy buries it under a traceback."""
    try:
        yield
    except PolicyError as error:
        logger.critical(
            "Cannot start the crawl: %(error)s",
            {"error": error},
            extra={"spider": spider},
        )
        raise


def check(name: str, value: Any, rule: Callable[[Any], _T]) -> _T:
    try:
        return rule(value)
    except ValueError as error:
        raise PolicyError(name, value, str(error)) from None


def raw(settings: BaseSettings, name: str, default: Any = None) -> Any:
    value = settings.get(name, default)
    return value.copy_to_dict() if isinstance(value, BaseSettings) else value


def reject_unknown_names(settings: BaseSettings, known: Mapping[str, Any]) -> None:
    for name in map(str, settings):
        if name.startswith(PREFIX) and name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise PolicyError(name, settings[name], f"there is no such setting{hint}")


def reject_scrapys(settings: BaseSettings) -> None:
    name = "AUTOTHROTTLE_ENABLED"
    if settings.getbool(name):
        raise PolicyError(
            name,
            settings[name],
            "cannot be combined with scrapy-politeness, which adapts the rate itself; "
            "remove this setting",
        )
    # From 2.18, Scrapy takes 0 for no limit; before, it would wait forever.
    name = "CONCURRENT_REQUESTS"
    if scrapy.version_info < (2, 18):
        check(name, settings[name], rules.at_least_one)


def read_spacing(settings: BaseSettings, spider: Spider | None) -> float:
    name = "DOWNLOAD_DELAY"
    value = _attribute_or_setting(settings, spider, "download_delay", name)
    return check(name, value, rules.not_negative)


def read_concurrency(settings: BaseSettings, spider: Spider | None) -> int:
    name = "CONCURRENT_REQUESTS_PER_DOMAIN"
    if settings.getint("CONCURRENT_REQUESTS_PER_IP", 0):
        name = "CONCURRENT_REQUESTS_PER_IP"
    # What a Scrapy with a throttler calls it.
    newer = "THROTTLING_SCOPE_CONCURRENCY"
    if (settings.getpriority(newer) or 0) > (settings.getpriority(name) or 0):
        name = newer
    value = _attribute_or_setting(settings, spider, "max_concurrent_requests", name)
    return check(name, value, rules.at_least_one)


def _attribute_or_setting(
    settings: BaseSettings, spider: Spider | None, attribute: str, name: str
) -> Any:
    """Older Scrapy prefers the spider's attribute; newer ones copy it into the setting,
    unless that was set for the spider or on the command line."""
    if (settings.getpriority(name) or 0) < SETTINGS_PRIORITIES["spider"]:
        return getattr(spider, attribute, settings[name])
    return settings[name]
