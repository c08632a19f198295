"""`ampscope view`: serves the dashboard on this machine and opens a browser on it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path


class Command:
    """Open the local dashboard on one or more runs.

    Without RUN: every run below ampscope-runs, the latest first. With several RUNs the dashboard compares them.
    It binds loopback, makes no outside request, and ends at Ctrl-C."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("runs", nargs="*", metavar="RUN", help="run directory (default: the latest)")
        parser.add_argument(
            "--host", default="127.0.0.1", help="address to bind (default: 127.0.0.1, this machine only)"
        )
        parser.add_argument(
            "--port", type=int, default=None, help="port (default: the first free one from 8265 on)"
        )
        parser.add_argument("--no-browser", action="store_true", help="only print the address")

    def run(self, args: argparse.Namespace) -> int:
        import threading

        from ampscope.app.runs import RunStore
        from ampscope.app.security import is_loopback
        from ampscope.app.server import Server, create_app

        runs = RunStore(_paths(args.runs))
        runs.get(runs.names[0])
        loopback = is_loopback(args.host)
        server = Server(create_app(runs, () if loopback else _own_names(args.host)), args.host, args.port)
        if not loopback:
            _say(
                f"warning: {args.host} is not loopback: anyone who can reach this machine can read these runs."
            )
        _say(f"dashboard: {server.url}  (Ctrl-C ends it)")
        warm = threading.Thread(target=runs.warm, name="ampscope-warm", daemon=True)
        warm.start()
        if not args.no_browser:
            threading.Thread(
                target=_open_browser, args=(server.url,), name="ampscope-browser", daemon=True
            ).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
        # A query that still runs when the interpreter ends would abort the process.
        runs.stop()
        warm.join()
        runs.close()
        return 0


def _paths(named: list[str]) -> list[Path]:
    from ampscope.trace.reader import find_run, list_runs

    if named:
        return [find_run(name) for name in named]
    latest = find_run(None)
    return [latest, *list_runs()]


def _own_names(host: str) -> list[str]:
    import socket

    return [host, socket.gethostname(), socket.getfqdn()]


def _open_browser(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        _say("no browser was found: open the address yourself.")


def _say(text: str) -> None:
    print(f"[ampscope] {text}", file=sys.stderr, flush=True)
