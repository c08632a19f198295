"""The one error type whose text is meant for the user."""

from __future__ import annotations


class AmpscopeError(Exception):
    """Says in one sentence what is wrong and what to do; printed in one place, then exits with `exit_code`.

    `exit_code` is 2 for usage or an unreadable run, 1 for a failed gate, 125-127 for a command
    that could not be started.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code
