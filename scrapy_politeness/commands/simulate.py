"""``scrapy politeness simulate``: the governor against a model of a host."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_politeness import simulator
from scrapy_politeness.commands import output
from scrapy_politeness.config import rules
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.slot import Slot

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from array import array
    from collections.abc import Callable
    from typing import Any

    from scrapy.commands import ScrapyCommand

    from scrapy_politeness.core.governor.bounds import Bounds
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.simulator import Results, Server
    from scrapy_politeness.simulator.servers import CountingServer

SUMMARY = "Simulate a crawl of a host with a rate limit"

_NO_LIMIT = "none"
_LIMIT = "the limit"

# Name, default, rule, help.
_NUMBERS = (
    ("seconds", 600, rules.positive, "how long to crawl, in virtual time"),
    ("latency", 0.05, rules.not_negative, "seconds until a response arrives"),
    ("seed", 0, rules.count, "seed of the random numbers"),
)
_FAILURES = {
    "failures": (simulator.refused(), "answered with a 503"),
    "resets": (simulator.error(), "whose connection is lost"),
    "timeouts": (simulator.unanswered, "never answered"),
}

# More would take minutes.
_MOST_REQUESTS = 2_000_000

# For each bin of the plot.
_FEWEST_REQUESTS = 5
_MARGIN = 10
_WIDEST = 100


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "limit",
        metavar="LIMIT",
        help=f'such as "200/10s" or "40/m", or "{_NO_LIMIT}" for no limit',
    )
    parser.add_argument(
        "--window",
        choices=["fixed", "sliding", "bucket"],
        default="fixed",
        help="how the host counts (default: %(default)s)",
    )
    parser.add_argument(
        "--burst", metavar="N", help="size of the bucket (default: the whole limit)"
    )
    headers = parser.add_mutually_exclusive_group()
    headers.add_argument(
        "--retry-after", action="store_true", help="refusals have a Retry-After header"
    )
    headers.add_argument(
        "--ratelimit", action="store_true", help="all responses have RateLimit headers"
    )
    for name, (_, meaning) in _FAILURES.items():
        text = f"share of requests {meaning}, whatever the rate, such as 0.01"
        parser.add_argument(f"--{name}", metavar="SHARE", default=0, help=text)
    for name, default, _, meaning in _NUMBERS:
        text = f"{meaning} (default: %(default)s)"
        parser.add_argument(f"--{name}", default=default, help=text)


def run(command: ScrapyCommand, opts: Namespace) -> int:
    assert command.settings is not None
    limit = _read("LIMIT", opts.limit, _limit)
    seconds, latency, seed = (
        _read(f"--{name}", getattr(opts, name), rule) for name, _, rule, _ in _NUMBERS
    )
    shares = {
        name: float(_read(f"--{name}", getattr(opts, name), _share))
        for name in _FAILURES
    }
    timeout = command.settings["DOWNLOAD_TIMEOUT"]
    timeout = _read("DOWNLOAD_TIMEOUT", timeout, rules.positive)
    policy = Policy.read(command.settings)
    bounds = policy.bounds
    rate = limit.count / limit.period if limit else bounds.max_rate
    _check_length(seconds, rate, bounds)
    server = _server(limit, opts) if limit else simulator.Server(rate)
    network = simulator.Network(latency)
    for number, (name, share) in enumerate(shares.items()):
        if share:
            # The kinds of failures are independent of each other.
            chance, failure = len(shares) * seed + number, _FAILURES[name][0]
            server = simulator.RandomFailures(server, share, failure, seed=chance)
    if shares["timeouts"]:
        server = simulator.FewConnections(
            server, policy.concurrency, network.round_trip, shares["timeouts"], timeout
        )
    slot = Slot("host", bounds, spacing=policy.spacing, concurrency=policy.concurrency)
    results = simulator.simulate(
        [slot], server, seconds=seconds, seed=seed, network=network, timeout=timeout
    )
    if opts.json:
        output.print_json(_as_dict(opts.limit, rate, results))
    else:
        is_limited = limit is not None and not any(shares.values())
        output.print_text(_plot(results, rate, limit.period if limit else 0.0))
        ideal = _LIMIT if is_limited else "the possible rate"
        output.print_text(_summary(results, rate, bounds, ideal))
    return 0


def _limit(value: str) -> Limit | None:
    return None if value == _NO_LIMIT else rules.limit(value)


def _share(value: Any) -> float:
    return value and rules.fraction(value)


def _read(name: str, value: Any, rule: Callable[[Any], Any]) -> Any:
    try:
        return rules.checked(name, value, rule)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_length(seconds: float, rate: float, bounds: Bounds) -> None:
    most = seconds * min(bounds.max_rate, 2 * rate)
    if most > _MOST_REQUESTS:
        raise output.CommandError(
            f"that would be {most:.3g} requests, more than {_MOST_REQUESTS:.3g}; "
            "choose fewer --seconds"
        )


def _server(limit: Limit, opts: Namespace) -> Server:
    server: CountingServer
    if opts.window == "bucket":
        burst = _read("--burst", opts.burst or limit.count, rules.at_least_one)
        server = simulator.TokenBucket(limit.count / limit.period, burst)
    elif opts.burst is not None:
        raise UsageError("--burst goes with --window bucket")
    elif opts.window == "sliding":
        server = simulator.SlidingWindow(limit.count, limit.period)
    else:
        server = simulator.FixedWindow(limit.count, limit.period)
    if opts.ratelimit:
        return simulator.QuotaHeaders(server)
    return simulator.RetryAfter(server) if opts.retry_after else server


def _counts(times: array[float], bins: int, seconds: float) -> list[int]:
    counts = [0] * bins
    for time in times:
        counts[min(bins - 1, int(time / seconds * bins))] += 1
    return counts


def _plot(results: Results, rate: float, period: float) -> str:
    log, seconds = results.log, results.seconds
    columns = max(20, min(_WIDEST, shutil.get_terminal_size().columns) - _MARGIN)
    # A bin that is shorter than the limit's window, or holds one request or none,
    # would show a saw where there is a steady rate.
    windows = seconds / period if period else math.inf
    bins = max(1, int(min(columns, windows, seconds * rate / _FEWEST_REQUESTS)))
    served = _counts(log.served_at, bins, seconds)
    rates = [served[n * bins // columns] * bins / seconds for n in range(columns)]
    refused = [count > 0 for count in _counts(log.refused_at, columns, seconds)]
    return output.plot(rates, rate, refused, seconds)


def _summary(results: Results, rate: float, bounds: Bounds, ideal: str) -> str:
    text = (
        f"{results.served} pages in {results.seconds:.6g} s: "
        f"{results.efficiency:.1%} of {ideal}, {results.refused} refused "
        f"({results.refusals_per_100:.2f} per 100 pages)"
    )
    for count, what in (
        (results.unlucky, "of them by bad luck"),
        (results.timed_out, "timed out"),
        (results.failed, "failed"),
    ):
        if count:
            text += f", {count} {what}"
    if results.reached_at is not None:
        reached = ideal if ideal == _LIMIT else "90 % of it"
        text += f"; reached {reached} after {results.reached_at:.0f} s"
    if bounds.max_rate < rate:
        text += (
            f"\nPOLITENESS_MAX_RATE={bounds.max_rate:.6g} keeps the rate below the "
            f"limit of {rate:.3g}/s; try -s POLITENESS_MAX_RATE={2 * rate:.3g}"
        )
    return text


def _as_dict(limit: str, rate: float, results: Results) -> dict[str, object]:
    names = ("seconds", "served", "refused", "unlucky", "timed_out", "failed")
    return {
        "limit": limit,
        "limit_per_second": rate,
        **{name: getattr(results, name) for name in names},
        "share": results.efficiency,
        "refusals_per_100": results.refusals_per_100,
        "reached_at": results.reached_at,
        "refused_at": list(results.log.refused_at),
        "rates": [list(point) for point in results.trace],
    }
