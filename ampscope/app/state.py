"""What a page shows, as its address says it: a path and query parameters. All state of the dashboard is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

MAX_SEARCH = 8192
"""Longer query strings are cut: no view needs them."""

SHARED = ("run", "process")
"""Parameters that every page keeps when the user goes from one to the next."""

BROWSER_KEYS = ("format", "scale", "init", "growth", "backoff", "interval")
"""Parameters that only clientside callbacks read: a change of these asks nothing of the server."""


@dataclass(frozen=True)
class View:
    """One address. `params` are (key, value) pairs, first value of a key wins, in the order of the address."""

    path: str = "/"
    params: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, path: str | None, search: str | None) -> View:
        """From the path and the query string (with or without its question mark); never raises."""
        pairs = parse_qsl((search or "").lstrip("?")[:MAX_SEARCH], max_num_fields=None, errors="replace")
        first: dict[str, str] = {}
        for name, value in pairs:
            first.setdefault(name, value)
        return cls("/" + (path or "/").strip("/"), tuple(first.items()))

    def get(self, key: str, default: str = "") -> str:
        return dict(self.params).get(key) or default

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """The value of `key` if it is one of `allowed`, else the default, else the first allowed, else ""."""
        value = self.get(key)
        if value in allowed:
            return value
        if default is not None:
            return default
        return allowed[0] if allowed else ""

    def integer(self, key: str) -> int | None:
        """The value of `key` as an integer; None when it is absent or not one."""
        try:
            return int(self.get(key))
        except ValueError:
            return None

    @property
    def slug(self) -> str:
        """First segment of the path: the page. The overview's is the empty string."""
        return self.path.strip("/").split("/")[0]

    @property
    def rest(self) -> str:
        """What follows the page in the path, e.g. the key of a finding."""
        return self.path.strip("/").partition("/")[2]

    def link(self, path: str, **params: str | None) -> str:
        """Address of another view: the shared parameters of this one, then `params` that are not empty."""
        kept = {k: v for k, v in self.params if k in SHARED}
        kept.update({k: v for k, v in params.items() if v})
        query = urlencode(kept, quote_via=quote, safe="/:,.")
        return path + (f"?{query}" if query else "")
