"""The one way in which an edit is not made: with the reason, for the user to read."""

from __future__ import annotations


class Refused(Exception):
    """An edit that is not safely mechanical. The message is one sentence that says why."""
