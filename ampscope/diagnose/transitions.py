"""Where finite numbers became NaN or inf: ops with finite inputs and a non-finite output, by family and place.

Describes; which of them is a fault, and of what kind, is for the 3xx and 4xx rules to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from ampscope.diagnose.frames import Row, numbers, real, records, text, texts, whole

HALF_TYPES = ("float16", "bfloat16")

MATMUL = frozenset({
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "matmul", "linear", "convolution",
    "mkldnn_convolution", "_convolution", "cudnn_convolution", "mkldnn_linear", "einsum", "chain_matmul",
    "_addmm_activation", "_scaled_mm", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_attention_math", "scaled_dot_product_attention", "_grouped_mm",
})  # fmt: skip
REDUCTION = frozenset({
    "sum", "nansum", "mean", "cumsum", "cumprod", "prod", "norm", "linalg_vector_norm", "linalg_norm", "var",
    "var_mean", "std", "std_mean", "pow", "square", "logsumexp", "logcumsumexp", "nll_loss_forward",
    "nll_loss2d_forward", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "kl_div", "_cdist_forward", "_pdist_forward", "scatter_add", "scatter_reduce", "index_add", "segment_reduce",
    "native_batch_norm", "trace", "renorm",
})  # fmt: skip
MASKS = frozenset({
    "masked_fill", "masked_fill_", "full", "full_like", "new_full", "fill", "fill_", "where", "scalar_tensor",
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "masked_scatter", "lift_fresh",
    "lift_fresh_copy", "zeros_like", "index_fill", "resize_",
})  # fmt: skip
"""Ops that write a constant or make memory: their inf is somebody's intention, their NaN is uninitialised."""

BAD_FORWARD = ("forward", "recompute")


@dataclass(frozen=True)
class Transition:
    """One op call that made a non-finite value of finite ones. `op` has no `aten::`.

    `shadow_amax` and `shadow_nonfinite` tell what float32 would have given, None where it was not tried.
    `harmful`: the loss of its segment was not finite, or its step was skipped or never came.
    """

    rank: int
    proc: int
    step: int
    segment: int
    seq: int
    phase: str
    op: str
    module: str | None
    file: str | None
    line: int | None
    function: str | None
    in_dtypes: tuple[str, ...]
    out_dtypes: tuple[str, ...]
    in_shapes: tuple[str, ...]
    in_amax: float | None
    out_nonfinite: int
    out_nan: int
    shadow_amax: float | None
    shadow_nonfinite: int | None
    scalars: tuple[float, ...]
    harmful: bool

    @property
    def in_half(self) -> bool:
        """The result is stored in half precision."""
        return any(d in HALF_TYPES for d in self.out_dtypes)

    @property
    def float32_survives(self) -> bool | None:
        """Whether float32 gives fewer non-finite values; None where it was not tried."""
        return None if self.shadow_nonfinite is None else self.shadow_nonfinite < self.out_nonfinite

    @property
    def place(self) -> tuple[str, str | None, str | None, str | None]:
        """One cause at one place: the op, the module, the function of the user's."""
        return self.op, self.module, self.file, self.function


QUERY = (
    "SELECT o.*, s.loss IS NOT NULL AS loss_known, s.loss AS segment_loss, s.outcome AS outcome "
    "FROM ops o LEFT JOIN steps s ON s.rank = o.rank AND s.proc IS NOT DISTINCT FROM o.proc "
    "AND s.segment = o.segment WHERE o.out_nonfinite > 0 AND coalesce(o.in_nonfinite, 0) = 0 "
    "ORDER BY o.rank, o.proc, o.segment, o.seq LIMIT {limit}"
)


def read_transitions(frame: pd.DataFrame) -> tuple[Transition, ...]:
    """The transitions in a frame of `QUERY`, without the ops that write constants, in order."""
    made = map(_transition, records(frame))
    return tuple(t for t in made if t.op not in MASKS)


def by_cause(transitions: Iterable[Transition]) -> list[list[Transition]]:
    """Groups of one cause at one place, in order of first occurrence."""
    groups: dict[tuple[str | None, ...], list[Transition]] = {}
    for t in transitions:
        groups.setdefault(t.place, []).append(t)
    return list(groups.values())


def _transition(row: Row) -> Transition:
    outcome = text(row["outcome"])
    healthy = outcome == "stepped" and (row["loss_known"] is not True or math.isfinite(row["segment_loss"]))
    return Transition(
        rank=whole(row["rank"]) or 0,
        proc=whole(row["proc"]) or 0,
        step=whole(row["step"]) or 0,
        segment=whole(row["segment"]) or 0,
        seq=whole(row["seq"]) or 0,
        phase=text(row["phase"]) or "other",
        op=(text(row["op"]) or "").removeprefix("aten::"),
        module=text(row["module"]),
        file=text(row["file"]),
        line=whole(row["line"]),
        function=text(row["function"]),
        in_dtypes=texts(row["in_dtypes"]),
        out_dtypes=texts(row["out_dtypes"]),
        in_shapes=texts(row["in_shapes"]),
        in_amax=real(row["in_amax"]),
        out_nonfinite=whole(row["out_nonfinite"]) or 0,
        out_nan=whole(row["out_nan"]) or 0,
        shadow_amax=real(row["shadow_amax"]),
        shadow_nonfinite=whole(row["shadow_nonfinite"]),
        scalars=numbers(row["scalars"]),
        harmful=not healthy,
    )
