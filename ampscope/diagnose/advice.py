"""Advice that depends on the machine: bf16 only where the device computes in it, and what autocast does there."""

from __future__ import annotations

from ampscope.diagnose.finding import Change
from ampscope.diagnose.signals import Signals

CUDA_FLOAT32 = (
    "exp, log, pow, reciprocal, rsqrt, softmax, log_softmax, sum, prod, cumsum, norms, layer_norm, "
    "group_norm, softplus and the losses"
)
"""Ops that CUDA autocast runs in float32 (torch.amp op reference); CPU autocast leaves most of them in half."""


def or_bf16(signals: Signals, otherwise: str) -> str:
    """`otherwise`, and bf16 as the other way out of fp16 where the device computes in it."""
    if not signals.bf16_native:
        return otherwise
    how = "switch autocast to" if "float16" in signals.half_autocast else "use"
    return f"{otherwise}, or {how} bfloat16, whose range is that of float32"


def bf16_change(signals: Signals) -> dict[str, str]:
    """The override that switches to bf16; none where bf16 would be emulated, or where autocast has no part in it."""
    if not (signals.bf16_native and "float16" in signals.half_autocast):
        return {}
    return {"autocast.dtype": "bfloat16", "scaler.enabled": "false"}


def module_change(signals: Signals, module: str | None) -> Change:
    """Float32 for one module where it is known; otherwise bf16 for the run where that is native."""
    if module:
        return Change(set={"module.fp32": module})
    return Change(set=bf16_change(signals))


def autocast_policy(signals: Signals, op: str) -> str:
    """What autocast of this device does with an op that it could have kept in float32."""
    if signals.device == "cpu":
        return f"CPU autocast leaves {op} in half precision (CUDA autocast would run it in float32)"
    return f"autocast runs {op} in float32 only where it sees the call; this one ran in half precision"


def without_bf16(signals: Signals) -> str:
    """Why bf16 is not advised here; empty where it is."""
    if signals.bf16_native:
        return ""
    return " (bfloat16 is not native on this device, so it is no way out here)"
