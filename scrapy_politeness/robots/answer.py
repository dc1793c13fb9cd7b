"""One request for a robots.txt, and what its answer means (RFC 9309, 2.3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import IgnoreRequest

from scrapy_politeness.core.outcome import Verdict
from scrapy_politeness.exceptions import GivenUp, NotWelcome
from scrapy_politeness.http.classify import classify_exception, status_text
from scrapy_politeness.http.names import printable
from scrapy_politeness.robots.request import OWN_FETCH, SERVER_ERRORS

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from scrapy import Request
    from scrapy.http import Response

    from scrapy_politeness.http.scrapy_internals import Engine


class RobotsAnswer(NamedTuple):
    """``is_final`` says that there are rules, or certainly none; otherwise robots.txt
    is unreachable for that ``reason``. ``error`` is set if nothing got to the host."""

    reason: str
    is_final: bool
    response: Response | None = None
    error: Exception | None = None


async def ask(
    engine: Engine, request: Request, nth: int, refusals: AbstractSet[int]
) -> RobotsAnswer:
    """Send it for the ``nth`` time; ``refusals`` are status codes."""
    request = request.replace(meta={**request.meta, OWN_FETCH: nth})
    try:
        response = await engine.download(request)
    except (GivenUp, NotWelcome) as error:
        return RobotsAnswer(printable(str(error)), is_final=False, error=error)
    except IgnoreRequest as error:  # redirected too often, too large, or forbidden
        return RobotsAnswer(printable(str(error)), is_final=True)
    except Exception as error:  # a download may raise anything
        reason = f"{type(error).__name__}: {printable(str(error))}"
        verdict = classify_exception(error, request).verdict
        was_sent = verdict is not Verdict.IGNORED
        return RobotsAnswer(reason, False, error=None if was_sent else error)
    is_final = response.status not in refusals | SERVER_ERRORS
    return RobotsAnswer(status_text(response.status), is_final, response)
