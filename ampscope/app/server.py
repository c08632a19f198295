"""Makes the application and serves it by waitress. Binds loopback unless told otherwise; makes no request itself."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dash import Dash
from flask import Response, abort, request

from ampscope.app import callbacks, downloads, shell
from ampscope.app.runs import RunStore
from ampscope.app.security import protect
from ampscope.app.state import View
from ampscope.errors import AmpscopeError

FIRST_PORT = 8265
"""Tried first, then the next ones, then any free port."""

TRIES = 10
THREADS = 6

LONGEST_REQUEST = 60
"""Seconds that a request may take to end after the server was told to."""

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{%title%}</title>
<script src="/assets/theme.js?v=1"></script>
{%css%}
</head>
<body>
{%app_entry%}
<noscript>The dashboard needs JavaScript; it runs from this machine only.</noscript>
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>"""


def create_app(runs: RunStore, allowed_hosts: Sequence[str] = ()) -> Dash:
    """The application over `runs`. `allowed_hosts` are Host names accepted besides the loopback ones."""
    app = Dash(
        "ampscope.app",
        assets_folder=str(Path(__file__).parent / "assets"),
        assets_ignore="theme.js",
        index_string=INDEX,
        serve_locally=True,
        suppress_callback_exceptions=True,
        title="ampscope",
        update_title="",
        add_log_handler=False,
        enable_mcp=False,
    )
    app.layout = shell.layout(callbacks.root(), callbacks.LIVE_MS)
    callbacks.register(app, runs)
    _add_downloads(app, runs)
    protect(app.server, app, allowed_hosts)
    return app


def _add_downloads(app: Dash, runs: RunStore) -> None:
    @app.server.get("/download/<name>")  # type: ignore[untyped-decorator]
    def download(name: str) -> Response:
        try:
            context = callbacks.context_of(
                runs, View.parse("/run", request.query_string.decode("utf-8", "replace"))
            )
            body, mime = downloads.content(context, name)
        except AmpscopeError:
            abort(404)
        answer = Response(body, mimetype=mime)
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return answer


@dataclass
class Server:
    """A bound server. `url` is known before it serves; `run` serves until `stop` or Ctrl-C."""

    app: Dash
    host: str
    port: int | None = None
    _server: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import waitress

        logging.getLogger("waitress").setLevel(logging.ERROR)
        sock = bind(self.host, self.port)
        self.port = sock.getsockname()[1]
        self._server = waitress.create_server(
            self.app.server,
            sockets=[sock],
            threads=THREADS,
            ident=None,
            clear_untrusted_proxy_headers=True,
            outbuf_overflow=1 << 26,  # plotly.js from memory, not through a temporary file
        )

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        wild = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
        host = wild.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self) -> None:
        """Serves until `stop` is called in another thread, or until Ctrl-C."""
        try:
            self._server.run()
        finally:
            # A query that still runs when the interpreter ends would abort the process.
            self._server.task_dispatcher.shutdown(timeout=LONGEST_REQUEST)
            self._close_all()

    def stop(self) -> None:
        """Ends `run`, from another thread."""
        self._server.trigger.pull_trigger(self._close_all)

    def _close_all(self) -> None:
        from waitress import wasyncore

        wasyncore.close_all(self._server._map, ignore_all=True)


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket on `port`, or without one on the first free port from `FIRST_PORT` on.

    Raises AmpscopeError when the address or the asked-for port cannot be had.
    """
    if port is not None and not 0 <= port <= 65535:
        raise AmpscopeError(f"There is no port {port}; choose one from 1 to 65535.")
    ports = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + TRIES), 0]
    reason = ""
    for candidate in ports:
        try:
            return _listen(host, candidate)
        except OSError as error:
            reason = error.strerror or str(error)
            if isinstance(error, socket.gaierror):
                break
    where = f"{host}:{port}" if port is not None else host
    raise AmpscopeError(f"Cannot serve on {where}: {reason}; choose another --port or --host.")


def _listen(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":
            # Not to wait for old connections to time out; a port on which another process listens is refused still.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(64)
    except OSError:
        sock.close()
        raise
    return sock
