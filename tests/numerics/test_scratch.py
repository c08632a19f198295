"""The per-thread buffers: what they copy, that they are per thread, and how bits become values."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ampscope.numerics.scratch import (
    CHUNK,
    W32,
    W64,
    Scratch,
    chunks_of,
    loaded,
    loaded_codes,
    scratch,
    width_of,
)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False).map(abs))
def test_decode_undoes_encode_in_32_bits(x: float) -> None:
    assert W32.decode(W32.encode(x)) == x


@given(st.floats(allow_nan=False, allow_infinity=False).map(abs))
def test_decode_undoes_encode_in_64_bits(x: float) -> None:
    assert W64.decode(W64.encode(x)) == x


def test_masks() -> None:
    assert (W32.inf, W64.inf) == (0x7F800000, 0x7FF0000000000000)
    assert (W32.neginf, int(W32.magnitude)) == (0xFF800000, 0x7FFFFFFF)
    assert W32.encode(math.inf) == W32.inf
    assert W32.bits_65520 == int(np.float32(65520).view(np.uint32))


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        (torch.float16, W32),
        (torch.bfloat16, W32),
        (torch.int16, W32),
        (torch.int32, W64),
        (torch.float64, W64),
    ],
)
def test_width_holds_the_dtype(dtype: torch.dtype, width: object) -> None:
    assert width_of(dtype) is width


def test_loaded_copies_every_chunk() -> None:
    x = torch.arange(2 * CHUNK + 3, dtype=torch.float32)
    total = [(v.n, times, float(v.load[0]), float(v.load[-1])) for v, times in loaded(x)]
    assert total == [
        (CHUNK, 1, 0.0, CHUNK - 1.0), (CHUNK, 1, float(CHUNK), 2 * CHUNK - 1.0), (3, 1, 2.0 * CHUNK, 2.0 * CHUNK + 2),
    ]  # fmt: skip
    codes = torch.arange(5, dtype=torch.int8)
    assert [v.code.tolist() for v, _ in loaded_codes(codes[::2])] == [[0, 2, 4]]
    assert list(chunks_of(torch.empty(0))) == []


def test_threads_do_not_share() -> None:
    mine, theirs = scratch(W32), []
    thread = threading.Thread(target=lambda: theirs.append(scratch(W32)))
    thread.start()
    thread.join()
    assert scratch(W32) is mine
    assert theirs[0] is not mine


def test_kept_views_are_bounded() -> None:
    s = Scratch(W32)
    first = s.views(torch.Size([1]))
    assert s.views(torch.Size([1])) is first
    for n in range(1, 1000):
        s.views(torch.Size([n]))
    assert len(s._views) <= 256
