"""Writes patched files in the place of the user's, each as a whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from ampscope.errors import AmpscopeError
from ampscope.patch.plan import FilePatch
from ampscope.trace.files import sync_dir


def write_patches(patches: Iterable[FilePatch]) -> None:
    """Replace every file by its patched content; mode and owner's rights stay, links are followed.

    Raises AmpscopeError, before anything is written, when one of them is not what it was or cannot be written.
    """
    todo = [(patch, Path(os.path.realpath(patch.path))) for patch in patches]
    for patch, path in todo:
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise AmpscopeError(f"{patch.shown} cannot be written; nothing was changed.")
        if path.read_bytes() != patch.before:
            raise AmpscopeError(
                f"{patch.shown} changed just now; nothing was changed. Run the command again."
            )
    for patch, path in todo:
        try:
            _replace(path, patch.after)
        except OSError as error:
            raise AmpscopeError(f"{patch.shown} could not be written ({error.strerror or error}).") from error


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_dir(path.parent)
