"""Seals a Parquet file with a CRC-32 of all its bytes, stored in its own footer, so that one flipped bit
anywhere is noticed. The file stays a plain Parquet file. Standard library only.

The footer's key-value metadata holds SEAL_KEY with a value of fixed width; the checksum is that of the file
with BLANK in its place. CRC-32 finds every burst of up to 32 bits and misses other damage once in 2^32.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from pathlib import Path

SEAL_KEY = "ampscope.crc32"
BLANK = "00000000"

_CHUNK = 1 << 22
_FIELD = SEAL_KEY.encode() + b"\x18\x08"
"""Key, then the Thrift compact-protocol header of the value: a binary field of 8 bytes."""


def seal(data: bytes) -> bytes:
    """`data`, a Parquet file whose SEAL_KEY is BLANK, with the checksum filled in."""
    at = _value_at(data)
    if at is None or data[at : at + 8] != BLANK.encode():
        raise ValueError(f"the file has no blank {SEAL_KEY}")
    return data[:at] + f"{zlib.crc32(data):08x}".encode() + data[at + 8 :]


def problem(path: Path) -> str | None:
    """What is wrong with a sealed file, or None: it is whole. Follows no link and waits for no pipe; never
    raises."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as e:
        return "not a regular file" if path.is_symlink() else f"cannot be opened: {e.strerror}"
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        with open(fd, "rb", buffering=0, closefd=False) as f:
            return _problem(f, status.st_size)
    except OSError as e:
        return f"cannot be read: {e.strerror}"
    finally:
        os.close(fd)


def _problem(f: io.FileIO, size: int) -> str | None:
    f.seek(max(0, size - 8))
    tail = f.read(8)
    if len(tail) < 8 or tail[4:] != b"PAR1":
        return "truncated: it does not end as a Parquet file"
    start = size - 8 - int.from_bytes(tail[:4], "little")
    if start < 4:
        return "damaged: its footer length is wrong"
    f.seek(start)
    at = _value_at(f.read(size - start))
    if at is None:
        return "damaged: its footer holds no checksum"
    f.seek(0)
    crc, read, stored = 0, 0, b""
    for end in (start + at, start + at + 8, size):
        while read < end:
            chunk = f.read(min(_CHUNK, end - read))
            if not chunk:
                return "truncated while it was read"
            read += len(chunk)
            if end == start + at + 8:
                stored += chunk
                chunk = BLANK.encode()[: len(chunk)]
            crc = zlib.crc32(chunk, crc)
    return None if stored == f"{crc:08x}".encode() else "damaged: its checksum does not fit its content"


def _value_at(data: bytes) -> int | None:
    at = data.rfind(_FIELD)
    return None if at < 0 or at + len(_FIELD) + 8 > len(data) else at + len(_FIELD)
