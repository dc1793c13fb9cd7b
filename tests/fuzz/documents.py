"""Documents that are nearly sound: of JSON, and of bytes."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.fuzz.texts import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Path = tuple[str | int, ...]

# In JSON; Python writes and reads NaN and Infinity there.
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, "x", "", [], {}, [[1, 2]], [[1e9, 3]], {"a": 1}),
    *(0, 1, -1, 7, 1000, 10**15, 10**16, 10**400, -(10**15), 2**63),
    *(
        0.0,
        -0.0,
        0.5,
        1e15,
        -1e15,
        1e308,
        5e-324,
        1e-300,
        math.inf,
        -math.inf,
        math.nan,
    ),
    *("search", "steady", "stated"),
)
edits = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)),
    max_size=6,
)


def damaged(
    content: bytes, changes: Iterable[tuple[float, bytes]], cut: float | None
) -> bytes:
    data = bytearray(content)
    for place, new in changes:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    return bytes(data) if cut is None else bytes(data[: int(cut * len(data))])


def like(sound: Callable[[], Any]) -> st.SearchStrategy[bytes]:
    """JSON that is not what ``sound`` returns, or only in part."""
    places = st.deferred(lambda: st.sampled_from(list(_places(sound()))))
    return st.one_of(
        st.dictionaries(places, st.sampled_from(HOSTILE), max_size=6).map(
            lambda changes: _changed(sound(), changes)
        ),
        _json.map(json.dumps).map(str.encode),
        st.tuples(edits, st.floats(0, 1)).map(
            lambda pair: damaged(json.dumps(sound()).encode(), *pair)
        ),
        st.binary(max_size=30),
        st.integers(1, 60_000).map(lambda depth: b"[" * depth),
        st.integers(1, 60_000).map(lambda digits: b'{"at":' + b"9" * digits + b"}"),
    )


_json = st.recursive(
    st.sampled_from(HOSTILE) | names,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=5,
)


def _places(data: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _places(value, (*path, key))
    elif isinstance(data, list):
        for n, value in enumerate(data[:3]):
            yield from _places(value, (*path, n))


def _changed(sound: Any, changes: dict[Path, Any]) -> bytes:
    data = json.loads(json.dumps(sound))
    for path, value in changes.items():
        place = data
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = deepcopy(value)
        except (IndexError, KeyError, TypeError):
            pass  # changed away already
    return json.dumps(data).encode()
