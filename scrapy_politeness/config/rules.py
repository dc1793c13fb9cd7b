"""The rules for values, one function each.

Each returns the value in its proper type, or raises ValueError with the rule, worded to
follow "NAME=VALUE: ".
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from scrapy.settings import BaseSettings

from scrapy_politeness.core.pace import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Container

_T = TypeVar("_T")

_HOST = re.compile(r"(\*\.)?[^\s*/:?#@\[\]]+")
_REDIS_URL = re.compile(r"(rediss?(\+cluster)?|unix)://\S")
# A small b might mean bits.
_BANDWIDTH = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([kKMG])(i)?)?B/s\s*")
# An IPv6 address ends in digits too, but has more colons.
_ENDS_IN_PORT = re.compile(r"(\[.*\]|[^:]*):[0-9]+")


def checked(name: str, value: Any, rule: Callable[[Any], _T]) -> _T:
    """Apply a rule to an argument, which the error names."""
    try:
        return rule(value)
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None


def positive(value: Any) -> float:
    return _number(value, lambda n: n > 0, "must be a number greater than 0")


def not_negative(value: Any) -> float:
    return _number(value, lambda n: n >= 0, "must be a number, 0 or greater")


def fraction(value: Any) -> float:
    return _number(value, lambda n: 0 < n < 1, "must be a number between 0 and 1")


def count(value: Any) -> int:
    rule = "must be a whole number, 0 or greater"
    return int(_number(value, lambda n: n >= 0 and n.is_integer(), rule))


def at_least_one(value: Any) -> int:
    rule = "must be a whole number, 1 or greater"
    return int(_number(value, lambda n: n >= 1 and n.is_integer(), rule))


def flag(value: Any) -> bool:
    try:
        return BaseSettings({"flag": value}).getbool("flag")
    except (TypeError, ValueError):
        raise ValueError("must be True or False") from None


def one_of(*words: str) -> Callable[[Any], str]:
    def rule(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be {' or '.join(map(repr, words))}")
        return str(value)

    return rule


def optional(
    rule: Callable[[Any], _T], unset: Container[Any] = (None, "None", "")
) -> Callable[[Any], _T | None]:
    """Make a rule for what may be unset; on the command line, None is text."""
    return lambda value: None if value in unset else rule(value)


def progress(value: Any) -> bool:
    is_wanted = flag(value)
    if is_wanted:
        _need("rich", "progress")
    return is_wanted


def http_codes(value: Any) -> frozenset[int]:
    rule = "must be a list of HTTP status codes from 400 to 599"
    return frozenset(
        int(_number(item, lambda n: 400 <= n <= 599 and n.is_integer(), rule))
        for item in _items(value, rule)
    )


def host_names(value: Any) -> frozenset[str]:
    rule = (
        'must be a list of host names, or "*.domain" for all its subdomains, without '
        "scheme, port or path"
    )
    items = _items(value, rule)
    if not all(isinstance(item, str) and _is_host(item.strip()) for item in items):
        raise ValueError(rule)
    return frozenset(item.strip().lower() for item in items)


def slot_name(value: str) -> str:
    """A slot may have any name but one that looks like a host and never matches."""
    name = value.removeprefix("*.")
    if "/" in name or "*" in name or _ENDS_IN_PORT.fullmatch(name):
        raise ValueError(
            f'{value!r} must be a host name, "*.domain" or the name of a slot, without '
            "scheme, port or path"
        )
    return value


class SlotPattern(NamedTuple):
    pattern: re.Pattern[str]
    name: str


def slot_patterns(value: Any) -> tuple[SlotPattern, ...]:
    rule = (
        "must be a list of pairs of a URL pattern and the name of a slot, such as "
        r'[(r"https://api\.example\.org/search", "search")]'
    )
    return tuple(_slot_pattern(item, rule) for item in _items(value, rule))


def _slot_pattern(item: Any, rule: str) -> SlotPattern:
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise ValueError(f"{item!r:.80} is wrong: {rule}")
    pattern, name = item
    if not isinstance(pattern, str | re.Pattern) or not name:
        raise ValueError(f"{item!r:.80} is wrong: {rule}")
    try:
        compiled = re.compile(pattern)
        compiled.search("")
    except (re.error, RecursionError, OverflowError, TypeError) as error:
        raise ValueError(
            f"{pattern!r:.80} is not a regular expression for text: {error}"
        ) from None
    try:
        return SlotPattern(compiled, one_slot(name))
    except ValueError as error:
        raise ValueError(f"the slot {name!r:.80} of {pattern!r:.80} {error}") from None


def grouping(value: Any) -> str:
    if value not in ("host", "domain"):
        raise ValueError('must be "host" or "domain"')
    return str(value)


def one_slot(value: Any) -> str:
    if not isinstance(value, str) or value.startswith("*."):
        raise ValueError("must be the name of one slot, such as a host name")
    return slot_name(value).lower()


def limit(value: Any) -> Limit:
    """One, or several that all apply."""
    rule = (
        'must be a count and a period, such as "5/2s", "40/m" or "1000/day", or a list '
        "of those"
    )
    several = isinstance(value, list | tuple) or str(value).lstrip().startswith("[")
    items = _items(value, rule) if several else [value]
    try:
        limits = [Limit.parse(item) for item in items]
    except (AttributeError, TypeError, ValueError):
        raise ValueError(rule) from None
    if not limits:
        raise ValueError(rule)
    return Limit.together(limits)


def bandwidth(value: Any) -> float:
    rule = 'must be bytes per second, such as "2MB/s" or "500kB/s"'
    match = _BANDWIDTH.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(rule)
    number, prefix, binary = match.groups()
    power = "kmg".index(prefix.lower()) + 1 if prefix else 0
    unit = float(1024 if binary else 1000) ** power
    return _number(float(number) * unit, lambda rate: rate > 0, rule)


# An empty limit may be a mistake, and must not mean a crawl without limits.
optional_limit = optional(limit, unset=(None, "None"))


def path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise ValueError("must be the path of a file")
    return str(value)


def output(value: Any) -> Path:
    """A file that is written at the end must be known to be writable at the start."""
    file = Path(path(value)).expanduser().absolute()
    if file.is_dir() or not os.access(file.parent, os.W_OK | os.X_OK):
        raise ValueError(
            "must be the path of a file in a folder that exists and is writable"
        )
    return file


def port(value: Any) -> int:
    rule = "must be a port from 1 to 65535, or 0 for any free one"
    number = int(_number(value, lambda n: 0 <= n <= 65535 and n.is_integer(), rule))
    _need("prometheus_client", "prometheus")
    return number


def host_name(value: Any) -> str:
    if not isinstance(value, str) or not _is_host(value) or "*" in value:
        raise ValueError("must be the name or address of a host")
    return value


def redis_url(value: Any) -> str:
    if isinstance(value, str) and "+sentinel://" in value:
        raise ValueError(
            "Sentinel is not supported; use the address of a proxy or a name that "
            'always leads to the master, or a cluster ("redis+cluster://…")'
        )
    if not isinstance(value, str) or not _REDIS_URL.match(value):
        raise ValueError(
            'must be None or a URL such as "redis://localhost:6379/0", "rediss://…", '
            '"unix://…" or "redis+cluster://…"'
        )
    _need("redis", "redis")
    # Optional: only needed to share limits.
    from redis.asyncio import ConnectionPool

    try:
        pool = ConnectionPool.from_url(value.replace("+cluster://", "://", 1))
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        raise ValueError(
            "cannot be parsed; escape special characters in a password, such as "
            '"%23" for "#"'
        ) from None
    return value


def _number(value: Any, accept: Callable[[float], bool], rule: str) -> float:
    try:
        # bool is a subclass of int, but True is not a rate.
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and accept(number)):
        raise ValueError(rule)
    return number


def _need(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ValueError(
            f'needs the package {package}: pip install "scrapy-politeness[{extra}]"'
        )


def _is_host(name: str) -> bool:
    try:
        return bool(_HOST.fullmatch(name) or ipaddress.IPv6Address(name))
    except ValueError:
        return False


def _items(value: Any, rule: str) -> list[Any]:
    """A list, or what the command line has instead: JSON, or Scrapy's comma lists."""
    try:
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = json.loads(value)
        return BaseSettings({"items": value}).getlist("items")
    except TypeError:
        raise ValueError(rule) from None
    except (ValueError, RecursionError):
        raise ValueError(f"{rule}; as text, JSON or separated by commas") from None
