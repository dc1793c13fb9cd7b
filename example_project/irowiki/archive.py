"""Where archives are kept: one folder per wiki, with its job directory inside."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import UsageError

from irowiki.ledger import Ledger

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from irowiki.demo_wiki import DemoWiki


logger = logging.getLogger(__name__)


class Archive(NamedTuple):
    folder: Path
    ledger: Ledger


def open_archive(settings: Settings, name: str) -> Archive:
    """Open an archive, and keep the crawl's job, files and report in its folder."""
    folder = Path(settings["ARCHIVES"], name)
    # "addon": the settings of the project and of the command line come first.
    settings.set("JOBDIR", str(folder / "job"), "addon")
    settings.set("FILES_STORE", str(folder), "addon")
    settings.set("POLITENESS_REPORT", str(folder / "report.html"), "addon")
    folder.mkdir(parents=True, exist_ok=True)
    return Archive(folder, Ledger(Path(settings["JOBDIR"], "ledger.sqlite")))


def check_user_agent(user_agent: str) -> None:
    if "put-your-address-here" in user_agent:
        logger.warning(
            "USER_AGENT in settings.py has no contact address yet: please add yours, "
            "so that the wiki's operators can reach you if this crawl causes problems"
        )


def choose_maxlag(settings: Settings) -> str:
    maxlag = str(settings["MAXLAG"])
    if not re.fullmatch(r"\d*", maxlag):
        raise UsageError(f"MAXLAG={maxlag} must be a whole number of seconds, or empty")
    return maxlag


def choose_namespaces(ledger: Ledger, chosen: str) -> None:
    """They cannot be changed later: an archive lists its pages at the start."""
    if not re.fullmatch(r"content|all|\d+(,\d+)*", chosen):
        raise UsageError(
            f"namespaces={chosen} must be 'content', 'all' or numbers such as '0,6,10'"
        )
    earlier = ledger.noted("namespaces")
    if earlier not in (None, chosen):
        raise UsageError(
            f"This archive was started with namespaces={earlier}, not {chosen}; rename "
            "its folder to start another one"
        )
    ledger.note("namespaces", chosen)


def open_demo(settings: Settings) -> tuple[Archive, DemoWiki]:
    """Start over if the demo is complete, otherwise resume it."""
    archive = open_archive(settings, "demo")
    if archive.ledger.is_complete:
        archive.ledger.close()
        shutil.rmtree(archive.folder)
        shutil.rmtree(settings["JOBDIR"], ignore_errors=True)
        archive = open_archive(settings, "demo")
    # The queue of an earlier run has requests for its address.
    wiki = _demo_wiki(int(archive.ledger.noted("port") or 0))
    archive.ledger.note("port", str(wiki.server_port))
    return archive, wiki


def _demo_wiki(port: int) -> DemoWiki:
    # Imported late: a real wiki does not need its requirements.
    try:
        from irowiki.demo_wiki import DemoWiki
    except ModuleNotFoundError as error:
        if error.name != "limits":
            raise
        raise UsageError(
            "The demo wiki needs the package 'limits': "
            "pip install 'scrapy-politeness[demo]'"
        ) from None
    try:
        return DemoWiki(port=port)
    except OSError as error:
        raise UsageError(
            f"Cannot resume the demo of an earlier run, because port {port} is in use "
            f"({error}); delete its folder to start over"
        ) from None
