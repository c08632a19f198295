"""Hashes of the user's source files, taken when the trace is closed: what a later edit of them is checked against."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable


def source_hashes(files: Iterable[str], since: float) -> dict[str, str]:
    """SHA-256 of every readable file by its absolute path, so that a later reader can tell whether it is the
    text that ran; "" for one that was written after `since` (seconds of the epoch)."""
    found: dict[str, str] = {}
    for name in files:
        with contextlib.suppress(OSError, ValueError):
            path = os.path.abspath(name)
            with open(path, "rb") as file:
                fresh = os.fstat(file.fileno()).st_mtime > since
                found[path] = "" if fresh else hashlib.sha256(file.read()).hexdigest()
    return found
