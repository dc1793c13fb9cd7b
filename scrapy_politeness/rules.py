"""The rules that the value of a setting must keep, one function each.

Each returns the value in its proper type, or raises ValueError with the rule as its
message, worded to stand behind "NAME=VALUE: ".
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from scrapy.settings import BaseSettings

from scrapy_politeness.core.pace import Limit

_T = TypeVar("_T")

Rule = Callable[[Any], Any]

_HOST = re.compile(r"(\*\.)?[^\s*/:?#@\[\]]+")
_REDIS_URL = re.compile(r"(rediss?(\+cluster)?|unix)://\S")
# An IPv6 address ends in digits too, but has more colons.
_ENDS_IN_PORT = re.compile(r"(\[.*\]|[^:]*):[0-9]+")


def checked(name: str, value: Any, rule: Callable[[Any], _T]) -> _T:
    """Apply a rule to an argument, and name that in the error."""
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


def progress(value: Any) -> bool | None:
    if value is None or value == "":
        return None
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
        'must be a list of host names, or "*.domain" for all hosts below a domain, '
        "without scheme, port and path"
    )
    items = _items(value, rule)
    if not all(isinstance(item, str) and _is_host(item.strip()) for item in items):
        raise ValueError(rule)
    return frozenset(item.strip().lower() for item in items)


def slot_name(value: str) -> str:
    """A user's own slot may have any name, unless it looks like a host that it can
    never match."""
    name = value.removeprefix("*.")
    if "/" in name or "*" in name or _ENDS_IN_PORT.fullmatch(name):
        raise ValueError(
            f'{value!r} must be a host name, "*.domain" or the name of a slot, without '
            "scheme, port and path"
        )
    return value


def one_slot(value: Any) -> str:
    """For what is asked of a single slot, while the crawl runs."""
    if not isinstance(value, str) or value.startswith("*."):
        raise ValueError("must be the name of one slot, such as a host name")
    return slot_name(value).lower()


def limit(value: Any) -> Limit:
    try:
        return Limit.parse(value)
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            'must be a count and a period, such as "5/2s", "40/m" or "1000/day"'
        ) from None


def optional_limit(value: Any) -> Limit | None:
    return None if value is None else limit(value)


def optional_path(value: Any) -> str | None:
    """Nothing at all, as the command line may give it, is None."""
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise ValueError("must be the path of a file")
    return str(value)


def optional_output(value: Any) -> Path | None:
    """A file that is written at the end: whether that will work must be known before
    the crawl."""
    name = optional_path(value)
    if name is None:
        return None
    path = Path(name).expanduser().absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError("must be the path of a file in a folder that can be written")
    return path


def optional_port(value: Any) -> int | None:
    if value is None or value == "":
        return None
    rule = "must be a port from 1 to 65535, or 0 for any that is free"
    port = int(_number(value, lambda n: 0 <= n <= 65535 and n.is_integer(), rule))
    _need("prometheus_client", "prometheus")
    return port


def host_name(value: Any) -> str:
    if not isinstance(value, str) or not _is_host(value) or "*" in value:
        raise ValueError("must be the name or the address of a host")
    return value


def spacing(value: Any) -> str:
    if value not in ("start", "finish"):
        raise ValueError('must be "start" or "finish"')
    return str(value)


def table(value: Any) -> dict[str, Mapping[str, Any]]:
    """A dict of dicts, keyed by slot, or its JSON (as the command line gives it)."""
    try:
        rows = BaseSettings({"table": value}).getdict("table")
    except (TypeError, ValueError):
        raise ValueError("must be a dict with an entry per slot") from None
    for key, row in rows.items():
        if not isinstance(row, Mapping):
            raise ValueError(f"the entry of {key!r} must be a dict")
    return {str(key).lower(): row for key, row in rows.items()}


def row(
    key: str, values: Mapping[str, Any], known: Mapping[str, Rule]
) -> dict[str, Any]:
    """Check one entry of a table; a key that no rule is for is an error."""
    parsed = {}
    for name, value in values.items():
        if name not in known:
            names = ", ".join(known)
            raise ValueError(f"{key!r} has an unknown key {name!r}; known are {names}")
        try:
            parsed[name] = known[name](value)
        except ValueError as error:
            raise ValueError(f"{name}={value!r} of {key!r} {error}") from None
    return parsed


def _number(value: Any, accept: Callable[[float], bool], rule: str) -> float:
    try:
        # bool is an int to Python, but True is nobody's rate.
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
    return bool(_HOST.fullmatch(name)) or _is_ipv6_address(name)


def _is_ipv6_address(name: str) -> bool:
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return False
    return True


def _items(value: Any, rule: str) -> list[Any]:
    try:
        return BaseSettings({"items": value}).getlist("items")
    except TypeError:
        raise ValueError(rule) from None


def redis_url(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _REDIS_URL.match(value):
        raise ValueError(
            'must be None or a URL such as "redis://localhost:6379/0", "rediss://…", '
            '"unix://…" or "redis+cluster://…"'
        )
    _need("redis", "redis")
    if not _can_be_read(value):
        raise ValueError(
            "cannot be read; special characters in a password must be escaped, such "
            'as "%23" for "#"'
        )
    return value


def _can_be_read(url: str) -> bool:
    # Only who shares budgets needs the package redis.
    from redis.asyncio import ConnectionPool

    try:
        pool = ConnectionPool.from_url(url.replace("+cluster://", "://", 1))
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return False
    return True
