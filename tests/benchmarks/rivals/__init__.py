"""Crawlers behind real rate limiters, judged by the servers' logs alone.

    python -m tests.benchmarks.rivals

It prints a table, and with ``--write`` writes docs/benchmark.md and its plot. Servers
and crawlers that are not installed are left out, and named: nginx, HAProxy and wget
from Debian; ``pip install -e ".[test,bench]"`` for Flask-Limiter and Crawlee; ``npm
install express express-rate-limit @crawlee/http`` for the others.
"""
