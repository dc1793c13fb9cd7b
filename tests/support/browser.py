"""A real browser, where there is one."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

_T = TypeVar("_T")

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def look_at(file: Path, look: Callable[[Page], _T], **context: Any) -> _T:
    """Open a page, which must not complain, ask anything or load anything else."""
    pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"needs a browser: none of {', '.join(_NAMES)} is installed")

    def visit() -> _T:
        with _opened(program, file, **context) as page:
            return look(page)

    # In a thread: Playwright wants no event loop around it, and pytest-twisted has one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(visit).result()


@contextmanager
def _opened(program: str, file: Path, **context: Any) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_FLAGS)
        page = browser.new_page(**context)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: complaints.append(request.url))
        page.goto(file.as_uri())
        yield page
        browser.close()
    assert complaints == [file.as_uri()]
