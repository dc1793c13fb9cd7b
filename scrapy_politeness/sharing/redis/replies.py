"""What the scripts answer, checked: values in Redis are hostile until parsed."""

from __future__ import annotations

from typing import Any, NamedTuple

from scrapy_politeness.sharing.redis.connection import UnavailableError

# The times of a server are microseconds since 1970; nothing here is larger.
_LARGEST = 2**53
_MOST_MEMBERS = 100_000
_LONGEST_PROMISE = 10**9


class Granted(NamedTuple):
    """The answer of ``grant``. All times are microseconds: ``there`` is the server's
    own, the others are waits from then on. ``nexts``, ``seats``, ``members`` and
    ``promises`` have an entry for each budget, the last until when this process is
    expected to ask again, or 0; ``waiting`` is how many processes want the first
    one, and ``turns_now`` the time there by which its turns go."""

    there: int
    revision: int
    cuts: int
    model: bytes
    pause: int
    late: int
    waits: list[int]
    nexts: list[int]
    seats: list[int]
    members: list[int]
    promises: list[int]
    waiting: int
    resets: int
    turns_now: int

    @classmethod
    def read(
        cls, answer: Any, *, wanted: int, budgets: int, horizon: int, longest: int
    ) -> Granted:
        """Raise UnavailableError for what the script cannot have answered. No pause
        and no wait is longer than the ``longest`` time."""
        there, revision, cuts, model, pause, late, *rest = _row(answer, cls)
        waits, nexts, seats, members, promises = map(_counts, rest[:5])
        waiting, resets, turns_now = map(_count, rest[5:])
        fits = len(waits) <= wanted and max(waits, default=0) <= horizon
        lengths = {len(one) for one in (nexts, seats, members, promises)}
        if not fits or lengths != {budgets}:
            raise _nonsense(answer)
        members = [max(1, min(number, _MOST_MEMBERS)) for number in members]
        return cls(
            _count(there),
            _count(revision),
            _count(cuts),
            _text(model),
            min(_count(pause), longest),
            _count(late),
            waits,
            [min(wait, longest) for wait in nexts],
            [min(n, of - 1) for n, of in zip(seats, members, strict=True)],
            members,
            [min(promise, _LONGEST_PROMISE) for promise in promises],
            min(waiting, _MOST_MEMBERS),
            resets,
            turns_now,
        )


class Saved(NamedTuple):
    """The answer of ``save``. Where another process was faster, ``is_saved`` is False,
    and ``model`` is what that one has saved."""

    there: int
    revision: int
    is_saved: bool
    model: bytes
    resets: int

    @classmethod
    def read(cls, answer: Any) -> Saved:
        there, revision, is_saved, model, resets = _row(answer, cls)
        return cls(
            _count(there),
            _count(revision),
            bool(_count(is_saved)),
            _text(model),
            _count(resets),
        )


def read_time(answer: Any) -> int:
    """Return the server's time: all that it answers an ask that came too late."""
    return _count(answer[0] if isinstance(answer, list) and answer else answer)


def read_places(answer: Any, most: int) -> tuple[int, int]:
    """Return the answer of ``places``: how many are granted, and how many processes
    share them."""
    counts = _counts(answer)
    if len(counts) != 2:
        raise _nonsense(answer)
    granted, members = counts
    return min(granted, most), max(1, min(members, _MOST_MEMBERS))


def _row(answer: Any, kind: Any) -> list[Any]:
    if not isinstance(answer, list) or len(answer) != len(kind._fields):
        raise _nonsense(answer)
    return answer


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise _nonsense(value)
    return value


def _counts(values: Any) -> list[int]:
    if not isinstance(values, list):
        raise _nonsense(values)
    return [_count(value) for value in values]


def _text(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _nonsense(value)
    return value


def _nonsense(answer: Any) -> UnavailableError:
    return UnavailableError(f"its answer makes no sense: {answer!r:.80}")
