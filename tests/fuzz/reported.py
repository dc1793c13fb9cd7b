"""Report pages that somebody else has written."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import example, given

from scrapy_politeness.commands.report import lines
from scrapy_politeness.core.governor.bounds import Bounds
from scrapy_politeness.core.slot import Slot
from scrapy_politeness.observe.page import render
from scrapy_politeness.observe.report import MARK, read_report
from scrapy_politeness.observe.timeline import Sampler
from scrapy_politeness.simulator.run import simulate
from scrapy_politeness.simulator.servers import TokenBucket
from tests.fuzz import documents
from tests.fuzz.stored import folder_in_memory
from tests.fuzz.watch import watched
from tests.support.hostile import is_harmless
from tests.support.observed import ObservedCrawl


@cache
def _sound() -> Any:
    observed_crawl = ObservedCrawl(sampler=Sampler(0.0))
    slot = Slot("a.example", Bounds(), spacing=0.0, concurrency=8)
    simulate([observed_crawl.observe(slot)], TokenBucket(0.5, burst=5), seconds=20.0)
    return json.loads(json.dumps(asdict(observed_crawl.report(20.0))))


@given(documents.like(_sound))
@example(json.dumps({**_sound(), "seconds": 2**53}).encode())
@example(json.dumps(_sound()).replace('"width": ', '"width": 5e-324, "_": ').encode())
def reports_may_be_anything(data: bytes) -> None:
    with folder_in_memory() as folder:
        path = Path(folder, "report.html")
        path.write_bytes(MARK.encode() + data + b"</script>")
        with watched():
            try:
                report = read_report(path)
            except ValueError:
                return
        with watched():
            shown = "\n".join(lines(report))
            page = render(report)
    assert is_harmless(shown)
    assert page.count("<script") == 2
