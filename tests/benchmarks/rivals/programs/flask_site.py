"""``python flask_site.py PORT LOG LIMIT``: pages behind Flask-Limiter."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from flask import Flask, Response, g, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

port, log, limit = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
app = Flask(__name__)
limiter = Limiter(
    get_remote_address,
    app=app,
    headers_enabled=True,
    storage_uri="memory://",
    strategy="moving-window",
)


@app.before_request
def begin() -> None:
    g.at = time.time()


@app.after_request
def end(response: Response) -> Response:
    refused = response.status_code == 429
    wait = response.headers.get("Retry-After", "-") if refused else "-"
    with log.open("a") as lines:
        lines.write(f"{g.at} {response.status_code} {request.path} {wait}\n")
    return response


@app.get("/page/<number>")
@limiter.limit(f"{limit}/second")
def page(number: str) -> str:
    return "<html>A page.</html>"


app.run("127.0.0.1", port, threaded=True)
