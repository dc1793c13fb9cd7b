"""What a crawl was like: the data of its report, as JSON inside the HTML page.

The page has it in ``<script type="application/json" id="politeness-report">``. This is
version 1; a change that old readers cannot bear makes it version 2. The fields are
those of the dataclasses below. Times are seconds, rates requests per second; what is
not known is null. ``causes`` has the names of ``core.cause.Cause`` in lower case, and
the seconds that requests waited because of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.observe.names import printable

VERSION = 1

MARK = '<script type="application/json" id="politeness-report">'
_END = "</script>"

# As large as a number in JSON may be for all readers.
_LARGEST = 2**53

# Seconds. No bucket is so short; the rate in it would be too high for any axis.
_NARROWEST = 1e-6


@dataclass(frozen=True, slots=True)
class Figures:
    """``served`` are all answers that were no refusals, robots.txt and error pages
    included; ``waited`` are the seconds that politeness held requests back, summed
    over slots."""

    sent: int
    served: int
    refused: int
    timed_out: int
    failed: int
    rescheduled: int
    waited: float
    causes: dict[str, float]

    @property
    def ranked_causes(self) -> list[tuple[Cause, float]]:
        """All causes that cost any time, the worst first."""
        known = [(Cause[name.upper()], spent) for name, spent in self.causes.items()]
        return sorted((c for c in known if c[1] > 0), key=lambda c: -c[1])


@dataclass(frozen=True, slots=True)
class Series:
    """Buckets of ``width`` seconds from the start of the crawl on: how many requests
    were sent (shared out over the time that each stands for) and refused, how many
    seconds the slot was silent, and which rate and ceiling held at the end of each."""

    width: float
    sent: list[float]
    refused: list[int]
    silent: list[float]
    rate: list[float | None]
    ceiling: list[float | None]


@dataclass(frozen=True, slots=True)
class SlotReport:
    """``rate``, ``ceiling``, ``health`` and ``bad_luck``, the share of the requests
    that fail whatever the rate, are those at the end of the crawl; only the most
    interesting slots have a ``series``."""

    name: str
    figures: Figures
    average_interval: float | None
    rate: float | None
    ceiling: float | None
    health: str | None
    series: Series | None
    bad_luck: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """``started`` is in ISO 8601. ``slots`` come in the order of their interest; the
    ``others`` are those that were not counted one by one."""

    version: int
    software: str
    spider: str
    started: str
    seconds: float
    finish_reason: str
    total: Figures
    series: Series
    slots: list[SlotReport]
    others: int
    other: Figures


def to_json(report: Report) -> str:
    """Return JSON that may stand in an HTML page: nothing in it can end a script."""
    text = json.dumps(asdict(report), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def read_report(path: str | Path) -> Report:
    """Return the data of a report page.

    Raises ValueError if that is no report, or a damaged one.
    """
    try:
        page = Path(path).read_text("utf-8")
        _, mark, rest = page.partition(MARK)
        text, end, _ = rest.partition(_END)
        if not mark or not end:
            raise ValueError("it has no data of a report")
        data = json.loads(text, parse_constant=_refuse)
        if isinstance(data, dict) and data.get("version") != VERSION:
            raise ValueError(
                f"its version is {data.get('version')!r}, only {VERSION} can be read"
            )
        return _checked(_parse(Report, data, "report"))
    except RecursionError:
        raise ValueError(f"{path}: its data is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a report that can be read: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _parse(kind: Any, data: Any, place: str) -> Any:
    """Return the data as the type wants it, or raise ValueError."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if data is None and NoneType in inner:
            return None
        return _parse(inner[0], data, place)
    if origin is list and isinstance(data, list):
        return [_parse(inner[0], value, place) for value in data]
    if origin is dict and isinstance(data, dict):
        return {key: _parse(inner[1], value, place) for key, value in data.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(data, Mapping):
        hints = get_type_hints(kind)
        # What has a default is newer than some of the pages.
        needed = [f.name for f in fields(kind) if f.default is MISSING]
        missing = [name for name in needed if name not in data]
        if missing:
            raise ValueError(f"{place} has no {missing[0]}")
        values = {
            f.name: _parse(hints[f.name], data[f.name], f.name)
            for f in fields(kind)
            if f.name in data
        }
        return kind(**values)
    if kind is str and isinstance(data, str):
        return printable(data)
    if kind in (int, float) and _is_figure(data, kind):
        return kind(data)
    raise ValueError(f"{place} is {str(data)[:50]!r}")


def _is_figure(data: Any, kind: type) -> bool:
    if isinstance(data, bool) or not isinstance(data, int | float):
        return False
    return 0 <= data <= _LARGEST and (kind is float or data == int(data))


def _checked(report: Report) -> Report:
    for figures in (report.total, report.other, *(s.figures for s in report.slots)):
        unknown = [name for name in figures.causes if name.upper() not in _CAUSES]
        if unknown:
            raise ValueError(f"there is no cause {unknown[0]!r}")
    for series in (report.series, *(s.series for s in report.slots)):
        if series is not None and not _fits(series):
            raise ValueError("a series has rows of different lengths, or no width")
    return report


_CAUSES = frozenset(Cause.__members__)


def _fits(series: Series) -> bool:
    rows = (series.sent, series.refused, series.silent, series.rate, series.ceiling)
    return series.width >= _NARROWEST and len({len(row) for row in rows}) == 1
