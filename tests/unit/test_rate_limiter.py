"""RateLimiter: the arithmetic on virtual time, the threads on the real one."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_politeness import RateLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Time:
    """Sleeping takes no time. ``events`` happen while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events: dict[float, Callable[[], object]] = {}

    def clock(self) -> float:
        return self.now

    def sleep(self, _: threading.Condition, seconds: float) -> None:
        wakes_at = self.now + seconds
        if self.events and (at := min(self.events)) <= wakes_at:
            self.now = at
            self.events.pop(at)()
        else:
            self.now = wakes_at


@pytest.fixture
def virtual() -> Time:
    return Time()


@pytest.fixture
def limiter(virtual: Time) -> Callable[..., RateLimiter]:
    return partial(RateLimiter, clock=virtual.clock, sleep=virtual.sleep)


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        ({"rate": 2.5}, [0, 0.4, 0.4, 0.4]),
        ({"rate": 1}, [0, 1, 1, 1]),
        ({"rate": "4/100s"}, [0, 25, 25, 25]),
        ({"delay": 1.5}, [0, 1.5, 1.5, 1.5]),
        ({"rate": 2, "burst": 3}, [0, 0, 0, 0.5, 0.5]),
        ({"delay": 2, "burst": 2}, [0, 0, 2, 2]),
        ({"rate": 0}, [0, 0, 0]),
        ({"delay": 0}, [0, 0, 0]),
        ({"rate": 5e-324}, [0, 1e9]),
        ({"delay": 1e300}, [0, 1e9]),
    ],
)
def test_calls_are_spaced(
    limiter: Callable[..., RateLimiter], arguments: dict[str, Any], waits: list[float]
) -> None:
    limited = limiter(**arguments)
    measured = [limited.wait() for _ in waits]
    assert measured == pytest.approx(waits, rel=0.01)
    assert measured[0] == 0


def test_time_that_passed_is_not_waited_again(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(delay=10)
    limited.wait()
    virtual.now += 7
    assert limited.wait() == 3
    virtual.now += 60
    assert limited.wait() == 0
    assert limited.wait() == 10


def test_a_delay_is_kept_even_after_a_late_call(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(delay=1)
    limited.wait()
    virtual.now += 1.004
    assert limited.wait() == 0
    assert limited.wait() == 1


def test_what_is_left_and_what_has_passed(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(delay=10)
    assert limited.elapsed_time == 0
    assert limited.remaining_wait_time == 0
    limited.wait()
    virtual.now += 4
    assert limited.elapsed_time == 4
    assert limited.remaining_wait_time == 6
    virtual.now += 20
    assert limited.elapsed_time == 24
    assert limited.remaining_wait_time == 0


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(0, 5), (1, 10), (3, 40), (6, 300), (5000, 300), (10**400, 300)],
)
def test_a_backoff_doubles_up_to_its_maximum(
    limiter: Callable[..., RateLimiter], virtual: Time, attempt: int, seconds: float
) -> None:
    began_at = virtual.now
    assert limiter(1).backoff(attempt) == seconds
    assert virtual.now == began_at + seconds


def test_the_backoff_is_the_users_choice(limiter: Callable[..., RateLimiter]) -> None:
    limited = limiter(1, backoff_base=0.5, backoff_max=1.5)
    assert [limited.backoff(attempt) for attempt in range(3)] == [0.5, 1, 1.5]


def test_no_burst_comes_after_a_backoff(limiter: Callable[..., RateLimiter]) -> None:
    limited = limiter(1, burst=3)
    limited.backoff(3)
    assert [limited.wait() for _ in range(3)] == [0, 1, 1]


def test_of_two_backoffs_the_later_end_counts(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(1)
    virtual.events[virtual.now + 2] = partial(limited.backoff, 0)
    assert limited.backoff(0) == 5
    assert virtual.now == 1007


def test_a_backoff_holds_who_waits_already(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(delay=10)
    limited.wait()
    virtual.events[virtual.now + 8] = partial(limited.backoff, 1)
    assert limited.wait() == 18


@pytest.mark.parametrize("attempt", [-1, math.nan, math.inf, True, 0.5, "many", None])
def test_a_wrong_attempt_is_refused(attempt: Any) -> None:
    with pytest.raises(ValueError, match=r"attempt=.*: must be a whole number"):
        RateLimiter(1).backoff(attempt)


def test_after_a_reset_the_next_call_is_the_first(
    limiter: Callable[..., RateLimiter],
) -> None:
    limited = limiter(delay=10)
    limited.wait()
    limited.reset()
    assert limited.elapsed_time == 0
    assert limited.remaining_wait_time == 0
    assert limited.wait() == 0
    assert limited.wait() == 10


def test_a_reset_lets_go_who_waits(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(delay=10)
    limited.wait()
    virtual.events[virtual.now + 3] = limited.reset
    assert limited.wait() == 3


def test_a_reset_ends_a_backoff(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    limited = limiter(1)
    began_at = virtual.now
    virtual.events[began_at + 2] = limited.reset
    limited.backoff(5)
    assert virtual.now == began_at + 2


def test_an_interrupted_wait_takes_no_permit(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    limited = limiter(delay=10)
    limited.wait()
    virtual.events[virtual.now + 4] = interrupt
    with pytest.raises(KeyboardInterrupt):
        limited.wait()
    assert limited.wait() == 6


def test_who_is_switched_off_never_waits(limiter: Callable[..., RateLimiter]) -> None:
    limited = limiter(delay=10)
    limited.enabled = False
    assert [limited.wait(), limited.wait(), limited.backoff(3)] == [0, 0, 0]
    assert limited.remaining_wait_time == 0
    limited.enabled = True
    assert limited.wait() == 10


@pytest.mark.parametrize(
    ("arguments", "enabled"),
    [({"rate": 0}, False), ({"delay": 0.0}, False), ({"rate": 1}, True)],
)
def test_a_rate_or_delay_of_0_switches_it_off(
    arguments: dict[str, Any], enabled: bool
) -> None:
    assert RateLimiter(**arguments).enabled is enabled


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": -1}, "rate=-1: must be a number, 0 or greater"),
        ({"rate": math.nan}, "rate=nan: must be a number"),
        ({"rate": math.inf}, "rate=inf: must be a number"),
        ({"rate": True}, "rate=True: must be a number"),
        ({"rate": [1]}, r"rate=\[1\]: must be a number"),
        ({"rate": "fast"}, "rate='fast': must be a count and a period"),
        ({"rate": "0/s"}, "rate='0/s': must be a count and a period"),
        ({"rate": "5/0s"}, "rate='5/0s': must be a count and a period"),
        ({"delay": -0.5}, "delay=-0.5: must be a number, 0 or greater"),
        ({"delay": math.inf}, "delay=inf: must be a number"),
        ({"delay": False}, "delay=False: must be a number"),
        ({"rate": 1, "burst": 0}, "burst=0: must be a whole number, 1 or greater"),
        ({"rate": 1, "burst": 1.5}, "burst=1.5: must be a whole number"),
        ({"rate": 1, "backoff_base": -1}, "backoff_base=-1: must be a number"),
        ({"rate": 1, "backoff_max": math.nan}, "backoff_max=nan: must be a number"),
        ({}, "exactly one of them must be given"),
        ({"rate": 1, "delay": 1}, "rate=1, delay=1: exactly one of them"),
    ],
)
def test_a_wrong_argument_is_named_with_its_rule(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RateLimiter(**arguments)


def test_with_waits_and_lets_errors_pass(limiter: Callable[..., RateLimiter]) -> None:
    limited = limiter(delay=10)
    with limited as entered:
        assert entered is limited
    with pytest.raises(KeyError), limited:
        raise KeyError
    assert limited.remaining_wait_time == 10


def test_a_decorated_function_keeps_its_name_and_waits(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    @limiter(delay=10)
    def add(first: int, *, second: int) -> int:
        """Add two numbers."""
        return first + second

    began_at = virtual.now
    assert [add(1, second=2), add(3, second=4)] == [3, 7]
    assert virtual.now == began_at + 10
    assert add.__name__ == "add"
    assert add.__doc__ == "Add two numbers."


def test_a_decorated_method_has_its_object(
    limiter: Callable[..., RateLimiter], virtual: Time
) -> None:
    class Client:
        name = "client"

        @limiter(delay=10)
        def greet(self, other: str) -> str:
            return f"{self.name} greets {other}"

    began_at = virtual.now
    assert Client().greet("you") == "client greets you"
    assert Client().greet("me") == "client greets me"
    assert virtual.now == began_at + 10


def test_an_async_function_is_refused() -> None:
    async def fetch() -> None:
        pass

    async def stream() -> AsyncIterator[int]:
        yield 1

    for function in (fetch, partial(fetch), stream):
        with pytest.raises(TypeError, match="block its event loop"):
            RateLimiter(1)(function)


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_eight_threads_share_the_rate_evenly() -> None:
    limited = RateLimiter(50)
    calls: list[tuple[float, int]] = []
    began_at = time.monotonic()

    def work(number: int) -> None:
        while len(calls) < 72:
            limited.wait()
            calls.append((time.monotonic(), number))

    join([start(partial(work, number)) for number in range(8)])
    times = sorted(at for at, _ in calls)
    # What is measured after the wait may be late, but never early.
    for nth, at in enumerate(times):
        assert at - began_at >= nth * 0.02 - 0.01
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    assert gaps[len(gaps) // 2] >= 0.01
    assert min(Counter(number for _, number in calls).values()) >= 5
    assert times[-1] - began_at < 6


class Line:
    """Starts threads one by one, each as soon as the one before it sleeps."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self._asleep = threading.Event()

    def sleep(self, turn: threading.Condition, seconds: float) -> None:
        self._asleep.set()
        turn.wait(seconds)

    def add(self, target: Callable[[], object]) -> None:
        self._asleep.clear()
        self.threads.append(start(target))
        assert self._asleep.wait(timeout=10)


def test_threads_go_in_the_order_in_which_they_came() -> None:
    line = Line()
    limited = RateLimiter(delay=0.1, sleep=line.sleep)
    limited.wait()
    order: list[int] = []

    def work(number: int) -> None:
        limited.wait()
        order.append(number)

    for number in range(5):
        line.add(partial(work, number))
    join(line.threads)
    assert order == [0, 1, 2, 3, 4]


def test_switching_off_frees_all_who_sleep() -> None:
    line = Line()
    limited = RateLimiter(delay=3600, sleep=line.sleep)
    limited.wait()
    line.add(limited.wait)
    line.add(limited.wait)
    line.add(partial(limited.backoff, 9))
    limited.enabled = False
    join(line.threads)


def test_a_reset_frees_the_first_in_line_and_who_backs_off() -> None:
    line = Line()
    limited = RateLimiter(delay=3600, sleep=line.sleep)
    limited.wait()
    line.add(limited.wait)
    line.add(partial(limited.backoff, 9))
    line.add(limited.wait)
    limited.reset()
    join(line.threads[:2])
    assert line.threads[2].is_alive()
    limited.enabled = False
    join(line.threads)


def test_a_backoff_holds_the_other_threads() -> None:
    line = Line()
    limited = RateLimiter(delay=0.01, backoff_base=0.5, sleep=line.sleep)
    began_at = time.monotonic()
    line.add(partial(limited.backoff, 0))
    left_at: list[float] = []

    def work() -> None:
        limited.wait()
        left_at.append(time.monotonic())

    line.add(work)
    line.add(work)
    join(line.threads)
    assert min(left_at) - began_at >= 0.5


def test_setting_the_wall_clock_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_clock = time.time
    limited = RateLimiter(delay=0.2)
    limited.wait()
    for days in (-1, 1):
        shift = days * 86400
        monkeypatch.setattr(time, "time", lambda shift=shift: wall_clock() + shift)
        assert limited.elapsed_time < 100
        waited = limited.wait()
        assert 0.1 <= waited < 10
