"""Values of options that several commands take; argparse turns what these raise into its message."""

from __future__ import annotations

import argparse


def whole_number(text: str) -> int:
    """A number from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)
