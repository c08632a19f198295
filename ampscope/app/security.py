"""What the server refuses, and what it tells browsers to refuse: foreign hosts, foreign origins, outside requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from dash import Dash
from flask import Flask, Response, abort, request

LOOPBACK_NAMES = ("localhost", "ip6-localhost")


def is_loopback(host: str) -> bool:
    """Whether a host name or address reaches this machine only."""
    bare = host.strip("[]").lower()
    if bare in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of a Host header or an authority, without its port: `[::1]:80` gives `::1`."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") <= 1 else text


def is_address(host: str) -> bool:
    """Whether `host` is a literal IP address: no name, so nothing that a foreign DNS could point here."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def protect(server: Flask, app: Dash, allowed_hosts: Sequence[str]) -> None:
    """Checks each request and sets the headers of each answer.

    A page of another site that resolves its own name to 127.0.0.1 sends its own Host header: it gets 403. Without
    this it could read the trace. `allowed_hosts` are names besides the loopback ones, for a server that is not
    bound to loopback; with any of them literal addresses are allowed too.
    """
    allowed = {host_of(h) for h in allowed_hosts}

    def known(header: str) -> bool:
        host = host_of(header)
        return is_loopback(host) or host in allowed or (bool(allowed) and is_address(host))

    @server.before_request
    def check() -> None:
        if not known(request.headers.get("Host", "")):
            abort(403)
        origin = request.headers.get("Origin")
        if origin is not None and not known(origin.rpartition("//")[2]):
            abort(403)
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.method != "GET":
            abort(403)

    scripts = " ".join(["'self'", *app.csp_hashes()])
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )

    @server.after_request
    def headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        response.headers["Permissions-Policy"] = "camera=(), microphone=(), geolocation=()"
        return response
