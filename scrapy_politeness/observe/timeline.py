"""What happened when, in a bounded number of buckets."""

from __future__ import annotations

from array import array

# So many buckets of this many seconds at first. When they are full, pairs of them
# become one, twice as wide: two days fit as well as a minute.
MOST_BUCKETS = 240
FIRST_WIDTH = 0.25


class Timeline:
    """Five rows of buckets, from ``start`` on: how many requests were ``sent`` and
    ``refused``, how many seconds were ``silent``, and the last known allowed ``rate``
    and learned ``ceiling``, 0 where there was none."""

    __slots__ = ("_start", "ceiling", "rate", "refused", "sent", "silent", "width")

    def __init__(self, start: float) -> None:
        self._start = start
        self.width = FIRST_WIDTH
        self.sent = array("f")
        self.refused = array("I")
        self.silent = array("f")
        self.rate = array("f")
        self.ceiling = array("f")

    def __len__(self) -> int:
        return len(self.sent)

    def note_sent(self, since: float, until: float, share: float = 1.0) -> None:
        """One request stands for the time until the next one was due: this makes even
        spacing an even line, however few requests fall into a bucket."""
        self._bucket(until)
        self._spread(self.sent, since, until, share)

    def note_silence(self, since: float, until: float) -> None:
        if until > since:
            self._bucket(until)
            self._spread(self.silent, since, until, until - since)

    def note_refusal(self, now: float) -> None:
        bucket = self._bucket(now)
        self.refused[bucket] += 1

    def note_rate(self, now: float, rate: float, ceiling: float | None) -> None:
        bucket = self._bucket(now)
        self.rate[bucket] = rate
        self.ceiling[bucket] = ceiling or 0.0

    def extend(self, now: float) -> None:
        """Nothing has happened until now."""
        self._bucket(now)

    def _spread(
        self, row: array[float], since: float, until: float, amount: float
    ) -> None:
        """All buckets must be there already: to make one may replace the row."""
        last = self._bucket(until)
        first = min(self._bucket(since), last)
        if first == last:
            row[first] += amount
            return
        per_second = amount / (until - since)
        for bucket in range(first, last + 1):
            begin = self._start + bucket * self.width
            inside = min(until, begin + self.width) - max(since, begin)
            row[bucket] += per_second * max(0.0, inside)

    def _bucket(self, now: float) -> int:
        """Return the bucket of that time, which is there afterwards."""
        age = max(0.0, now - self._start)
        if age >= self.width * len(self.sent):
            while age >= self.width * MOST_BUCKETS:
                self._grow(MOST_BUCKETS)
                self._merge_pairs()
            self._grow(int(age / self.width) + 1)
        return int(age / self.width)

    def _grow(self, length: int) -> None:
        more = length - len(self.sent)
        if more <= 0:
            return
        for row in (self.sent, self.silent, self.refused):
            row.frombytes(bytes(more * row.itemsize))
        for row in (self.rate, self.ceiling):
            row.extend([row[-1] if row else 0.0] * more)

    def _merge_pairs(self) -> None:
        self.width *= 2
        for name in ("sent", "silent", "refused"):
            row = getattr(self, name)
            merged = map(sum, zip(row[::2], row[1::2], strict=True))
            setattr(self, name, array(row.typecode, merged))
        self.rate = self.rate[1::2]
        self.ceiling = self.ceiling[1::2]
