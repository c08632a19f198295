"""Ops of a segment written down by hand: what is not said is unremarkable."""

from __future__ import annotations

from typing import Any

from ampscope.diagnose.opflow import Op, SegmentOps


def op(seq: int, name: str, ins: tuple[int, ...] = (), outs: tuple[int, ...] = (), **facts: Any) -> Op:
    """An op in float16 in forward, on line `seq`, with finite values; `facts` overrides."""
    known: dict[str, Any] = {
        "seq": seq, "phase": "forward", "op": name, "module": None, "file": "train.py", "line": seq,
        "function": "train", "in_dtypes": ("float16",) * len(ins), "out_dtypes": ("float16",) * len(outs),
        "in_shapes": ("4",) * len(ins), "out_shapes": ("4",) * len(outs), "scalars": (), "ins": ins, "outs": outs,
        "in_known": True, "in_nonfinite": 0, "out_nonfinite": 0, "out_nan": 0, "in_zeros": 0, "out_zeros": 0,
        "in_amax": 1.0, "in_amin": 0.5, "out_amax": 1.0, "shadow_amax": None, "shadow_nonfinite": None,
        "shadow_flushed": None, "shadow_sqnr_db": None, "cast": None, "cast_source": None, "half_casts": 0,
        "error": None, "reached": None,
    }  # fmt: skip
    return Op(**{**known, **facts})


def flow(*ops: Op, level: str = "census") -> SegmentOps:
    return SegmentOps(rank=0, proc=0, segment=3, step=3, level=level, ops=ops)
