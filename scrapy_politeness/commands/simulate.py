"""``scrapy politeness simulate``: the governor against a model of a host."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_politeness.commands.output import CommandError, encodable, say, say_json
from scrapy_politeness.commands.text_plot import FINE, PLAIN, TextPlot
from scrapy_politeness.config import rules
from scrapy_politeness.config.policy import Policy
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.simulator import (
    FewConnections,
    FixedWindow,
    Network,
    QuotaHeaders,
    RandomFailures,
    RetryAfter,
    Server,
    SlidingWindow,
    TokenBucket,
    error,
    refused,
    simulate,
    unanswered,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from array import array
    from collections.abc import Callable
    from typing import Any

    from scrapy.commands import ScrapyCommand

    from scrapy_politeness.core.governor.control_law import Bounds
    from scrapy_politeness.core.pace import Limit
    from scrapy_politeness.simulator import Results
    from scrapy_politeness.simulator.results import Log
    from scrapy_politeness.simulator.servers import CountingServer

SUMMARY = "Simulate a crawl of a host with a limit such as 200/10s"

NO_LIMIT = "none"
LIMIT = "the limit"

# More would take minutes.
_MOST_REQUESTS = 2_000_000

_FEWEST = 5
_MARGIN = 10
_WIDEST = 100


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "limit",
        metavar="LIMIT",
        help=f'such as "200/10s" or "40/m", or "{NO_LIMIT}" for a host without a limit',
    )
    parser.add_argument(
        "--window",
        choices=["fixed", "sliding", "bucket"],
        default="fixed",
        help="how the host counts (default: %(default)s)",
    )
    parser.add_argument(
        "--burst", metavar="N", help="the bucket's size (default: the whole limit)"
    )
    says = parser.add_mutually_exclusive_group()
    says.add_argument(
        "--retry-after", action="store_true", help="refusals have a Retry-After header"
    )
    says.add_argument(
        "--ratelimit", action="store_true", help="all responses have RateLimit headers"
    )
    for name, meaning in (
        ("failures", "answered with a 503"),
        ("timeouts", "never answered"),
        ("resets", "whose connection is lost"),
    ):
        parser.add_argument(
            f"--{name}",
            metavar="SHARE",
            help=f"share of requests {meaning} whatever the rate, such as 0.01",
        )
    for name, default, meaning in (
        ("seconds", 600, "how long to crawl, in virtual time"),
        ("latency", 0.05, "seconds until a response arrives"),
        ("seed", 0, "of the random numbers"),
    ):
        parser.add_argument(
            f"--{name}", default=default, help=f"{meaning} (default: %(default)s)"
        )


def run(command: ScrapyCommand, opts: Namespace) -> int:
    assert command.settings is not None
    limit = _read("LIMIT", opts.limit, _limit)
    seconds = _read("--seconds", opts.seconds, rules.positive)
    seed = _read("--seed", opts.seed, rules.count)
    network = Network(_read("--latency", opts.latency, rules.not_negative))
    timeout = command.settings["DOWNLOAD_TIMEOUT"]
    timeout = _read("DOWNLOAD_TIMEOUT", timeout, rules.positive)
    policy = Policy.read(command.settings)
    bounds = policy.bounds
    rate = bounds.max_rate if limit is None else limit.count / limit.period
    _check_length(seconds, rate, bounds)
    shares = {name: _share(name, opts) for name in ("failures", "resets", "timeouts")}
    server = Server(rate) if limit is None else _server(limit, opts)
    server = _with_failures(server, shares, seed)
    if shares["timeouts"]:
        server = FewConnections(
            server, policy.concurrency, network.round_trip, shares["timeouts"], timeout
        )
    law = Slot("host", bounds, spacing=policy.spacing, concurrency=policy.concurrency)
    report = simulate(
        [law], server, seconds=seconds, seed=seed, network=network, timeout=timeout
    )
    if opts.json:
        say_json(_as_dict(opts.limit, rate, report))
    else:
        say(_plot(report.log, rate, 0.0 if limit is None else limit.period, seconds))
        has_failures = limit is None or any(shares.values())
        ideal = "the possible rate" if has_failures else LIMIT
        say(_summary(report, rate, bounds, ideal))
    return 0


def _limit(value: str) -> Limit | None:
    return None if value == NO_LIMIT else rules.limit(value)


def _share(name: str, opts: Namespace) -> float:
    value = getattr(opts, name)
    return 0.0 if value is None else float(_read(f"--{name}", value, rules.fraction))


def _read(name: str, value: Any, rule: Callable[[Any], Any]) -> Any:
    try:
        return rules.checked(name, value, rule)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_length(seconds: float, rate: float, bounds: Bounds) -> None:
    most = seconds * min(bounds.max_rate, 2 * rate)
    if most > _MOST_REQUESTS:
        raise CommandError(
            f"that would be {most:.3g} requests, more than {_MOST_REQUESTS:.3g}; "
            "choose fewer --seconds"
        )


def _server(limit: Limit, opts: Namespace) -> Server:
    server: CountingServer
    if opts.window == "bucket":
        burst = _read("--burst", opts.burst or limit.count, rules.at_least_one)
        server = TokenBucket(limit.count / limit.period, burst)
    elif opts.burst is not None:
        raise UsageError("--burst goes with --window bucket")
    elif opts.window == "sliding":
        server = SlidingWindow(limit.count, limit.period)
    else:
        server = FixedWindow(limit.count, limit.period)
    if opts.ratelimit:
        return QuotaHeaders(server)
    return RetryAfter(server) if opts.retry_after else server


def _with_failures(server: Server, shares: dict[str, float], seed: int) -> Server:
    failures = {"failures": refused(), "resets": error(), "timeouts": unanswered}
    for number, (name, failure) in enumerate(failures.items()):
        if shares[name]:
            # What fails in one way says nothing about the others.
            chance = len(failures) * seed + number
            server = RandomFailures(server, shares[name], failure, seed=chance)
    return server


def _counts(times: array[float], bins: int, seconds: float) -> list[int]:
    counts = [0] * bins
    for time in times:
        counts[min(bins - 1, int(time / seconds * bins))] += 1
    return counts


def _plot(log: Log, rate: float, period: float, seconds: float) -> str:
    columns = max(20, min(_WIDEST, shutil.get_terminal_size().columns) - _MARGIN)
    # A bin that is shorter than the limit's window, or holds one request or none,
    # would show a saw where there is a steady rate.
    windows = seconds / period if period else math.inf
    bins = max(1, int(min(columns, windows, seconds * rate / _FEWEST)))
    served = _counts(log.served_at, bins, seconds)
    refused = _counts(log.refused_at, columns, seconds)
    plot = TextPlot(
        heights=[served[n * bins // columns] * bins / seconds for n in range(columns)],
        line=rate,
        marks=[count > 0 for count in refused],
        seconds=seconds,
        ink=FINE,
    )
    drawn = plot.draw()
    if encodable(drawn) == drawn:
        return drawn
    return TextPlot(plot.heights, rate, plot.marks, seconds, PLAIN).draw()


def _summary(report: Results, rate: float, bounds: Bounds, ideal: str) -> str:
    text = (
        f"{report.served} pages in {report.seconds:.6g} s: {report.efficiency:.1%} of "
        f"{ideal}, {report.refused} refused ({report.refusals_per_100:.2f} per 100 "
        "pages)"
    )
    if report.unlucky:
        text += f", {report.unlucky} of them by bad luck"
    if report.timed_out:
        text += f", {report.timed_out} timed out"
    if report.failed:
        text += f", {report.failed} failed"
    if report.reached_at is not None:
        reached = ideal if ideal == LIMIT else "90 % of it"
        text += f"; {reached} was reached after {report.reached_at:.0f} s"
    if bounds.max_rate < rate:
        text += (
            f"\nPOLITENESS_MAX_RATE={bounds.max_rate:.6g} keeps it below the limit of "
            f"{rate:.3g}/s; try -s POLITENESS_MAX_RATE={2 * rate:.3g}"
        )
    return text


def _as_dict(limit: str, rate: float, report: Results) -> dict[str, object]:
    names = ("seconds", "served", "refused", "unlucky", "timed_out", "failed")
    return {
        "limit": limit,
        "limit_per_second": rate,
        **{name: getattr(report, name) for name in names},
        "share": report.efficiency,
        "refusals_per_100": report.refusals_per_100,
        "reached_at": report.reached_at,
        "refused_at": list(report.log.refused_at),
        "rates": [list(point) for point in report.trace],
    }
