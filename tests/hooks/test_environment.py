from __future__ import annotations

import subprocess

import pytest
import torch

from ampscope.hooks.environment import native_support, process_info


def test_the_process_is_described_without_touching_a_device() -> None:
    info = process_info(rank=3)
    assert info.rank == 3
    assert info.torch == torch.__version__
    assert info.cpu_capability == torch.backends.cpu.get_cpu_capability()
    assert info.versions["torch"].startswith("2.")
    assert info.devices == () or torch.cuda.is_initialized()
    assert info.end is None


def test_native_support_is_a_plain_answer() -> None:
    assert native_support("bf16") in (True, False)
    assert native_support("fp16") in (True, False)


def test_no_process_is_started_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert process_info(rank=0).platform.count("-") >= 2
