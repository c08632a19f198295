from __future__ import annotations

import torch

from ampscope.hooks.process_state import autocast_dtype, capturing, device_allocated, resident_bytes


def test_the_autocast_in_force() -> None:
    assert autocast_dtype() == (None, None)
    with torch.autocast("cpu", dtype=torch.float16):
        assert autocast_dtype() == ("cpu", "float16")
        assert autocast_dtype("cpu") == ("cpu", "float16")
        assert autocast_dtype("meta") == (None, None)
        with torch.autocast("cpu", enabled=False):
            assert autocast_dtype() == (None, None)


def test_memory_without_a_device() -> None:
    resident = resident_bytes()
    assert resident is None or resident > 1 << 20
    if not torch.cuda.is_initialized():
        assert device_allocated() is None
        assert not capturing()
