"""Runs one target for some time: ``python -m tests.fuzz <target> [seconds]``.

Inputs are remembered in the folder that FUZZ_CORPUS names, if it does, one for each
target, and the next run goes on from there.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import atheris
from scrapy.utils.reactor import install_reactor

_SECONDS = 60
# No input may need more memory than this, what Python and Scrapy take included.
_MOST_MEMORY = 4 << 30
_OPTIONS = ("-max_len=4096", "-len_control=0", "-timeout=60", "-rss_limit_mb=4096")

_TELL_EVERY = 5.0


def main() -> None:
    names = sys.argv[1:2]
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else _SECONDS
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    with atheris.instrument_imports(include=["scrapy_politeness", "protego"]):
        from tests.fuzz.targets import TARGETS
    if not names or names[0] not in TARGETS:
        sys.exit(f"{__doc__}\nTargets: {', '.join(TARGETS)}")
    logging.getLogger("scrapy_politeness").setLevel(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    _fuzz(names[0], TARGETS[names[0]], seconds)


class _Counted:
    """A target that tells now and then how many inputs it has tried: the fuzzer ends
    the process itself."""

    def __init__(self, name: str, target: Any) -> None:
        self._name = name
        self._try = target.hypothesis.fuzz_one_input
        self._count = 0
        self._begun = self._told = monotonic()

    def __call__(self, data: bytes) -> None:
        if self._try(data) is not None:  # else it was too short to be one
            self._count += 1
        now = monotonic()
        if now - self._told > _TELL_EVERY:
            self._told = now
            print(f"{self._name}: {self._count} inputs in {now - self._begun:.0f} s")


def _fuzz(name: str, target: Any, seconds: int) -> None:
    options = [f"-max_total_time={seconds}", *_OPTIONS]
    if "FUZZ_CORPUS" in os.environ:
        folder = Path(os.environ["FUZZ_CORPUS"], name)
        folder.mkdir(parents=True, exist_ok=True)
        options.append(str(folder))
    atheris.Setup([sys.argv[0], *options], _Counted(name, target))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
