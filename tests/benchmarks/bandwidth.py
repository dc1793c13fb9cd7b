"""Files of 1 to 50 MB at 2 MB/s, crawled for real, judged by what the site has sent.

python -m tests.benchmarks.bandwidth [seconds]
"""

from __future__ import annotations

import sys
from itertools import accumulate
from random import Random

from tests.support.crawl import crawl
from tests.support.settings import fixed
from tests.support.site import Answer, Site

MB = 1_000_000
LIMIT = 2 * MB
WINDOW = 10.0


def main(seconds: float) -> None:
    random = Random(1)
    sizes: list[int] = []
    while sum(sizes) < LIMIT * seconds:
        sizes.append(random.randrange(1 * MB, 50 * MB))
    whole = bytes(max(sizes))

    def answer(path: str, nth: int) -> Answer | None:
        if not path.startswith("/file/"):
            return None
        return Answer(body=whole[: sizes[int(path.rpartition("/")[2])]])

    with Site(answer=answer) as server:
        urls = [f"{server.url}/file/{number}" for number in range(len(sizes))]
        limits = {"127.0.0.1": {"bandwidth": "2MB/s"}}
        settings = fixed(
            100, POLITENESS_LIMITS=limits, LOG_LEVEL="ERROR", DOWNLOAD_WARNSIZE=0
        )
        result = crawl(urls=urls, settings=settings, timeout=3 * seconds + 60)
        # On loopback, a file is there as soon as it is asked for.
        sent = [
            (a.at, sizes[int(a.path.rpartition("/")[2])])
            for a in server.arrivals
            if a.path.startswith("/file/")
        ]
    most = max(
        sum(size for at, size in sent if start <= at < start + WINDOW)
        for start, _ in sent
    )
    span = sent[-1][0] - sent[0][0]
    *before, _ = accumulate(size for _, size in sent)
    print(
        f"{len(result.items)} files, {sum(sizes) / MB:.0f} MB in {result.seconds:.0f} s"
    )
    print(
        f"most in 10 s: {most / MB:.1f} MB; the limit and the largest file: "
        f"{(LIMIT * WINDOW + max(sizes)) / MB:.1f} MB"
    )
    print(f"used: {before[-1] / span / LIMIT:.2f} of the limit")


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 300.0)
