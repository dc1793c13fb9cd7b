"""The data of a crawl's report, as JSON inside the HTML page.

This is version 1; a change that breaks old readers makes it version 2. The fields are
those of the dataclasses below. Times are seconds, rates requests per second; what is
not known is null, or left out. ``causes`` has the names of ``core.cause.Cause`` in
lower case, and the seconds that requests waited because of each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from scrapy_politeness.core.cause import Cause
from scrapy_politeness.core.text import counted, duration, number
from scrapy_politeness.http.names import printable
from scrapy_politeness.observe.evidence import Evidence  # noqa: TC001 - read by _parse
from scrapy_politeness.observe.figures import FIGURES

VERSION = 1

STILL_RUNNING = "running"

MARK = '<script type="application/json" id="politeness-report">'
_END = "</script>"

# The largest number in JSON that all readers take.
_LARGEST = 2**53

# Seconds. The rate in a shorter bucket would be too high for any axis.
_NARROWEST = 1e-6

_WHOLE = [figure.name for figure in FIGURES if figure.show is number]


@dataclass(frozen=True, slots=True)
class Series:
    """Buckets of ``width`` seconds since the start of the crawl: how many requests were
    sent (each spread over the time until the next) and refused, how many seconds the
    slot was paused, and the rate and ceiling at the end of each bucket."""

    width: float
    sent: list[float]
    refused: list[int]
    silent: list[float]
    rate: list[float | None]
    ceiling: list[float | None]


@dataclass(frozen=True, slots=True)
class SlotReport:
    """A slot, or several together. ``figures`` are those of ``figures.FIGURES``, by
    name, at the end of the crawl. ``evidence`` says how the host has responded at
    which rates. Only the most interesting slots have a ``series``. ``blocked`` says why
    we are not welcome, where that is so."""

    name: str
    figures: dict[str, float]
    causes: dict[str, float]
    health: str | None
    series: Series | None
    blocked: str | None = None
    evidence: list[Evidence] = field(default_factory=list)

    def __getitem__(self, figure: str) -> float:
        return self.figures.get(figure, 0)

    @property
    def ranked_causes(self) -> list[tuple[Cause, float]]:
        """All causes that cost any time, the worst first."""
        known = [(Cause[name.upper()], spent) for name, spent in self.causes.items()]
        return sorted((c for c in known if c[1] > 0), key=lambda c: -c[1])


@dataclass(frozen=True, slots=True)
class Report:
    """``started`` is in ISO 8601. ``slots`` come in the order of their interest; those
    that are not listed one by one are ``others``, and ``other`` is all of them. The
    ``finish_reason`` of a crawl that still ran is "running". A job that was resumed has
    several ``runs``; ``seconds`` are those of all of them, without the time between."""

    version: int
    software: str
    spider: str
    started: str
    seconds: float
    finish_reason: str
    total: SlotReport
    slots: list[SlotReport]
    others: int
    other: SlotReport
    runs: int = 1

    @property
    def is_running(self) -> bool:
        """Tell whether the crawl still ran, or was killed later."""
        return self.finish_reason == STILL_RUNNING

    @property
    def ending(self) -> str:
        """How long it took, and how it ended."""
        in_runs = f" in {counted(self.runs, 'run')}" if self.runs > 1 else ""
        took = f"{duration(self.seconds)}{in_runs}"
        if self.is_running:
            return f"still running after {took}, when this was written"
        return f"ended after {took}: {self.finish_reason}"


def to_json(report: Report) -> str:
    """Return JSON that may stand in an HTML page: nothing in it can end a script."""
    text = json.dumps(asdict(report), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def read_report(path: str | Path) -> Report:
    """Raises ValueError if the page is not a report, or a damaged one."""
    try:
        page = Path(path).read_text("utf-8")
        _, mark, rest = page.partition(MARK)
        text, end, _ = rest.partition(_END)
        if not mark or not end:
            raise ValueError("it contains no report data")
        return from_json(text)
    except ValueError as error:
        raise ValueError(f"{path} is not a readable report: {error}") from error


def from_json(text: str) -> Report:
    """Raises ValueError if it is not a report, or a damaged one."""
    try:
        data = json.loads(text, parse_constant=_refuse)
        if isinstance(data, dict) and (found := data.get("version")) != VERSION:
            raise ValueError(f"version {found!r} is not supported, only {VERSION}")
        return _checked(_parse(Report, data, "report"))
    except RecursionError:
        raise ValueError("its data is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


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
        return {key: _parse(inner[1], value, key) for key, value in data.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(data, Mapping):
        hints = get_type_hints(kind)
        # What a later version has added has a default.
        needed = [f.name for f in fields(kind) if _is_required(f)]
        if missing := [name for name in needed if name not in data]:
            raise ValueError(f"{place} has no {missing[0]}")
        names = [f.name for f in fields(kind) if f.name in data]
        return kind(**{name: _parse(hints[name], data[name], name) for name in names})
    if kind is str and isinstance(data, str):
        return printable(data)
    if kind in (int, float) and _is_figure(data, kind):
        return data
    raise ValueError(f"{place} is {str(data)[:50]!r}")


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _is_figure(data: Any, kind: type) -> bool:
    if isinstance(data, bool) or not isinstance(data, int | float):
        return False
    return 0 <= data <= _LARGEST and (kind is float or data == int(data))


def _checked(report: Report) -> Report:
    for slot in (report.total, report.other, *report.slots):
        for name in slot.causes:
            if name.upper() not in Cause.__members__:
                raise ValueError(f"there is no cause {name!r}")
        for name in _WHOLE:
            if slot[name] % 1:
                raise ValueError(f"{name} is {slot[name]!r}")
        if slot.series is not None and not _fits(slot.series):
            raise ValueError("a series has rows of different lengths, or no width")
    return report


def _fits(series: Series) -> bool:
    rows = (series.sent, series.refused, series.silent, series.rate, series.ceiling)
    return series.width >= _NARROWEST and len({len(row) for row in rows}) == 1
