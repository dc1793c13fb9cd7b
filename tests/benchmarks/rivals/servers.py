"""The servers: real limiters, and sites with bad weather."""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tests.benchmarks.rivals.crawlers import NODE_MODULES, PROGRAMS, needs_node
from tests.benchmarks.rivals.judge import Arrival, read_log
from tests.support.failures import Failures, constant, mixed
from tests.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIMIT = 20

_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  log_format plain '$msec $status $uri -';
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  limit_req_zone $binary_remote_addr zone=all:1m rate={limit}r/s;
  limit_req_status 429;
  server {{
    listen 127.0.0.1:{port};
    access_log {folder}/log plain;
    location /page/ {{
      limit_req zone=all burst=10 nodelay;
      try_files /none @page;
    }}
    location @page {{ return 200 "<html>A page.</html>"; }}
    location / {{ return 404; }}
  }}
}}
"""

_HAPROXY = """
global
  log stdout format raw local0
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend site
  bind 127.0.0.1:{port}
  log global
  log-format "%[date(0,ms)] %ST %HP -"
  stick-table type ip size 1m expire 10s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {limit} }}
  http-request return status 200 content-type text/html string "<html>A page.</html>"
"""


@dataclass(frozen=True)
class Running:
    url: str
    arrivals: Callable[[], list[Arrival]]


@dataclass(frozen=True)
class Server:
    """``open`` is a context manager. The fastest crawl has ``rate`` pages per second,
    after a ``burst`` at once. With ``crawl_delay``, robots.txt asks for that."""

    name: str
    open: Callable[[int, Path], Any]
    rate: float = float(LIMIT)
    burst: int = 0
    needs: str = ""
    share_of_pages: float = 1.0
    crawl_delay: float | None = None
    is_weather: bool = False

    def fastest(self, pages: int) -> float:
        return max(0.1, (pages - self.burst - 1) / self.rate)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _program(
    command: list[str], port: int, log: Path, milliseconds: bool = False
) -> Iterator[Running]:
    with log.with_suffix(".out").open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
        )
    try:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.05)
        source = log.with_suffix(".out") if milliseconds else log

        def arrivals() -> list[Arrival]:
            found = read_log(source)
            return (
                [a._replace(at=a.at / 1000) for a in found] if milliseconds else found
            )

        yield Running(f"http://127.0.0.1:{port}", arrivals)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def nginx(pages: int, folder: Path) -> Iterator[Running]:
    port = _free_port()
    file = folder / "nginx.conf"
    file.write_text(_NGINX.format(folder=folder, port=port, limit=LIMIT))
    command = ["nginx", "-p", str(folder), "-c", str(file)]
    with _program(command, port, folder / "log") as running:
        yield running


@contextmanager
def haproxy(pages: int, folder: Path) -> Iterator[Running]:
    port = _free_port()
    file = folder / "haproxy.cfg"
    file.write_text(_HAPROXY.format(port=port, limit=LIMIT))
    command = ["haproxy", "-db", "-f", str(file)]
    with _program(command, port, folder / "log", milliseconds=True) as running:
        yield running


def _script(*command: str) -> Callable[[int, Path], Any]:
    @contextmanager
    def opened(pages: int, folder: Path) -> Iterator[Running]:
        port, log = _free_port(), folder / "log"
        whole = [*command, str(port), str(log), str(LIMIT)]
        with _program(whole, port, log) as running:
            yield running

    return opened


def _site(says: float | None = None, **options: Any) -> Callable[[int, Path], Any]:
    """A site of the test suite; ``says`` is what its refusals ask for."""

    @contextmanager
    def opened(pages: int, folder: Path) -> Iterator[Running]:
        with Site(pages, **options) as site:

            def arrivals() -> list[Arrival]:
                return [
                    Arrival(a.at, a.status, a.path, says if a.status == 429 else None)
                    for a in site.arrivals
                ]

            yield Running(site.url, arrivals)

    return opened


def _missing(program: str, package: str) -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return "" if shutil.which(program, path=path) else f"apt-get install {package}"


def _rounded_up(wait: float) -> str:
    return str(math.ceil(wait))


_LIMITED: dict[str, Any] = {"limit": f"{LIMIT}/second", "retry_after": _rounded_up}
_BROKEN = ("/page/7", "/page/21", "/page/33")

SERVERS = [
    Server("nginx", nginx, burst=10, needs=_missing("nginx", "nginx-light")),
    Server("HAProxy", haproxy, needs=_missing("haproxy", "haproxy")),
    Server("limits (Python)", _site(1.0, **_LIMITED)),
    Server(
        "Flask-Limiter",
        _script(sys.executable, str(PROGRAMS / "flask_site.py")),
        needs="" if find_spec("flask_limiter") else 'pip install ".[bench]"',
    ),
    Server(
        "express-rate-limit",
        _script("node", str(PROGRAMS / "express_site.cjs")),
        needs=needs_node("express-rate-limit") or needs_node("express"),
    ),
    Server(
        "Crawl-delay: 0.5",
        _site(robots="User-agent: *\nCrawl-delay: 0.5\n"),
        rate=2.0,
        share_of_pages=0.3,
        crawl_delay=0.5,
        is_weather=True,
    ),
    Server(
        "5 % random 503s",
        _site(1.0, **_LIMITED, failures=Failures(errors=0.05)),
        is_weather=True,
    ),
    Server(
        "3 broken pages",
        _site(1.0, **_LIMITED, failures=Failures(broken=_BROKEN)),
        is_weather=True,
    ),
    Server(
        "mixed latencies",
        _site(1.0, **_LIMITED, failures=Failures(latency=mixed(0.05, 0.5))),
        is_weather=True,
    ),
    Server(
        "closes its port for 3 s",
        _site(limit=f"{LIMIT}/second", closes=3.0),
        is_weather=True,
    ),
    Server(
        "a queue: 2 workers",
        _site(workers=2, failures=Failures(latency=constant(0.1))),
        is_weather=True,
    ),
]
