"""Patches as a unified diff that `patch -p1` and `git apply` take."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ampscope.patch.plan import FilePatch

_NO_NEWLINE = "\\ No newline at end of file\n"


def unified(patches: Iterable[FilePatch]) -> str:
    """The diff of all files, in order; empty without a patch."""
    return "".join(_one(patch) for patch in patches)


def _one(patch: FilePatch) -> str:
    old, new = (data.decode("utf-8", "surrogateescape") for data in (patch.before, patch.after))
    name = patch.shown.replace("\\", "/")
    prefix = ("", "") if name.startswith("/") else ("a/", "b/")
    lines = difflib.unified_diff(
        _lines(old), _lines(new), fromfile=prefix[0] + name, tofile=prefix[1] + name, lineterm="\n"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines with their ends; only "\\n" ends a line, as in diff(1)."""
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
