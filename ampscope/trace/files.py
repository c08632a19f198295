"""Small file operations that survive a crash: what is half written never carries its final name.

Standard library only; the training process uses it.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds either its old content or all of the new, after a power cut too.

    Raises OSError; the temporary file is gone then.
    """
    tmp = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(tmp, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(tmp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            tmp.unlink()
        raise
    sync_dir(path.parent)


def sync_dir(path: Path) -> None:
    """Make renames inside `path` durable, where the file system lets a directory be synced."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_json(path: Path, value: dict[str, object]) -> None:
    """`write_atomic` of a JSON object; NaN and inf are written as Python's json does."""
    write_atomic(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


def read_json(path: Path) -> dict[str, object] | None:
    """The object in a JSON file, or None when there is none that can be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
