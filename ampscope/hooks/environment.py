"""What this process runs on: versions, processor and devices. Initialises no device."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from importlib import metadata

import torch

from ampscope.trace.records import DeviceInfo, ProcessInfo
from ampscope.trace.runinfo import utc_now

_NATIVE = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "fp16_arith"),
}
"""Instruction sets, as torch.cpu.get_capabilities names them, that compute a format in hardware."""

_PACKAGES = ("torch", "numpy", "accelerate", "lightning", "transformers", "deepspeed", "triton")


def process_info(rank: int) -> ProcessInfo:
    """The process, as its trace describes it; `proc` and `end` are filled in by the trace."""
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv else "")
    return ProcessInfo(
        rank=rank,
        proc=0,
        pid=os.getpid(),
        script=script,
        python=".".join(map(str, sys.version_info[:3])),
        torch=torch.__version__,
        platform=_platform(),
        cpu_model=_cpu_model(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        bf16_native=native_support("bf16"),
        fp16_native=native_support("fp16"),
        devices=_devices(),
        num_threads=torch.get_num_threads(),
        start=utc_now(),
        end=None,
        state="live",
        versions=_versions(),
    )


def native_support(kind: str) -> bool:
    """Whether the device that this process trains on computes matmuls in bf16 or fp16 in hardware.

    CUDA: fp16 from compute capability 7.0, bf16 from 8.0. CPU: what oneDNN and the instruction set report.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        major, _ = torch.cuda.get_device_capability()
        return major >= (8 if kind == "bf16" else 7)
    if sys.platform == "darwin" and os.uname().machine == "arm64":
        return True
    capabilities: Mapping[str, object] = {}
    with contextlib.suppress(Exception):
        capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in _NATIVE[kind])


def _devices() -> tuple[DeviceInfo, ...]:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return ()
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            DeviceInfo(
                name=properties.name,
                type="cuda",
                capability=f"{properties.major}.{properties.minor}",
                memory=properties.total_memory,
            )
        )
    return tuple(found)


def _cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def _platform() -> str:
    """Without the platform module, which starts a process to ask for the processor."""
    system = os.uname()
    return f"{system.sysname}-{system.release}-{system.machine}"


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        if package in sys.modules or package == "torch":
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[package] = metadata.version(package)
    return found
