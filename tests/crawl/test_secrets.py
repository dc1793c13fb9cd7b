"""Nothing secret is written anywhere: users, passwords and tokens of URLs, of proxies
and of Redis."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from scrapy_politeness.config.settings import PolicyError, check
from tests.crawl.test_metrics import address_of, fetch_until
from tests.support.crawl import crawl, start_crawl
from tests.support.redis_server import RedisServer
from tests.support.settings import fixed
from tests.support.site import Answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.crawl import Crawl
    from tests.support.site import Site

SECRET = "hush5551212"

_RECORD = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[)", re.M)
_SCRAPYS_OWN = re.compile(r"[-\d: ]+\[scrapy[.\]]")


def ours(log: str) -> list[str]:
    """What was logged, but for what Scrapy itself logs of each request."""
    return [text for text in _RECORD.split(log) if not _SCRAPYS_OWN.match(text)]


def assert_tells_nothing(result: Crawl) -> None:
    for record in ours(result.log):
        assert SECRET not in record, record
    assert SECRET not in repr(result.stats)


def all_of(server: RedisServer) -> str:
    client: Any = server.client(password=SECRET)
    readers: dict[bytes, Callable[[bytes], Any]] = {
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"string": client.get,
    }
    keys = list(client.scan_iter())
    assert keys
    return repr([(key, readers[client.type(key)](key)) for key in keys])


def test_secrets_are_written_nowhere(site: Callable[..., Site], tmp_path: Path) -> None:
    def answer(path: str, nth: int) -> Answer | None:
        if path.endswith("/robots.txt"):
            # Both a warning about what makes no sense, and one about what is too much.
            return Answer(body=b"User-agent: *\nCrawl-delay: x\nRequest-rate: 1/900\n")
        if "/refused" in path:
            return Answer(429, {"Retry-After": "0"})
        return None

    pages = site(5, answer=answer)
    proxy = pages.url.replace("//", f"//user:{SECRET}@")
    paths = [f"page/{n}?token={SECRET}" for n in range(4)] + [f"refused?key={SECRET}"]
    requests = [
        {"url": f"http://user:{SECRET}@a.example/{path}", "meta": {"proxy": proxy}}
        for path in paths
    ]
    with RedisServer("--requirepass", SECRET) as redis:
        settings = fixed(
            4,
            POLITENESS_ROBOTS=True,
            POLITENESS_ROBOTS_MAX_DELAY=0.4,
            POLITENESS_PROXY_LIMIT="100/s",
            POLITENESS_MAX_RESCHEDULES=1,
            POLITENESS_BACKOFF_BASE=0.1,
            POLITENESS_BACKOFF_MAX=0.1,
            RETRY_ENABLED=False,
            POLITENESS_STATE=str(tmp_path / "state.sqlite"),
            POLITENESS_REPORT=str(tmp_path / "report.html"),
            POLITENESS_PROMETHEUS_PORT=0,
            POLITENESS_REDIS_URL=redis.url.replace("//", f"//:{SECRET}@"),
        )
        with start_crawl(requests=requests, settings=settings) as running:
            address = address_of(running)
            fetch_until(
                address, lambda s: s.get(("requests_total", "a.example"), 0) > 1
            )
            with urlopen(address, timeout=10) as response:
                metrics = response.read().decode()
            shared = all_of(redis)
            result = running.wait()
    assert len(result.items) == 5
    assert address.startswith("http://127.0.0.1:")
    assert_tells_nothing(result)
    assert SECRET not in metrics
    assert SECRET not in shared
    written = {path.name: path for path in tmp_path.iterdir()}
    assert {"report.html", "state.sqlite"} <= written.keys()
    for path in written.values():
        assert SECRET.encode() not in path.read_bytes(), path
        assert not path.stat().st_mode & 0o022, path
    # All of them were there to be told of.
    log = "\n".join(ours(result.log))
    assert "robots.txt of http://a.example says 'Crawl-delay: x'" in log
    assert "robots.txt of http://a.example asks for 900 s" in log
    assert "<GET http://a.example/refused?…> was refused (429)" in log
    assert "Sharing rate limits through Redis at 127.0.0.1:" in log


def test_a_wrong_password_of_redis_is_not_told(site: Callable[..., Site]) -> None:
    with RedisServer("--requirepass", "another") as redis:
        url = redis.url.replace("//", f"//:{SECRET}@")
        settings = fixed(20, POLITENESS_REDIS_URL=url)
        result = crawl(urls=site(3).page_urls(), settings=settings)
    assert not result.items
    assert "invalid username-password pair" in result.log
    assert SECRET not in result.log


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POLITENESS_REDIS_URI", f"redis://:{SECRET}@host"),
        ("POLITENESS_REDIS", f"redis://host?password={SECRET}&db=1"),
        ("POLITENESS_REDIS_URL", f"redis:/:{SECRET}@host"),
        ("POLITENESS_REDIS_URL", f":{SECRET}@host//x"),
        ("POLITENESS_REDIS_URL", [f"redis://:{SECRET}@host"]),
    ],
)
def test_a_password_in_a_misspelt_setting_is_not_told(name: str, value: Any) -> None:
    def wrong(value: Any) -> None:
        raise ValueError("wrong")

    with pytest.raises(PolicyError) as caught:
        check(name, value, wrong)
    assert SECRET not in str(caught.value)
    assert "host" in str(caught.value)
