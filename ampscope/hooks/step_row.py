"""The row of `steps` that sums up one segment."""

from __future__ import annotations

from ampscope.hooks.clock import PHASES, Row, Segment
from ampscope.hooks.process_state import device_allocated, resident_bytes

NOT_MEASURED: dict[str, float | None] = dict.fromkeys(PHASES)


def step_columns(segment: Segment, outcome: str, now: float, run_began: float) -> Row:
    """Columns of a segment that ends at `now` with `outcome`; times are those of time.perf_counter."""
    losses = segment.losses
    spent = NOT_MEASURED if segment.counted else segment.spent
    return {
        "phase": "other",
        "micro": segment.micro,
        "outcome": outcome,
        "skipped": outcome == "skipped",
        "t_start": segment.began - run_began,
        "duration_s": now - segment.began,
        "data_s": spent["data"],
        "forward_s": spent["forward"],
        "backward_s": spent["backward"],
        "unscale_s": spent["unscale"],
        "optimizer_s": spent["optimizer"],
        "loss": sum(losses) / len(losses) if losses else None,
        "loss_dtype": segment.loss_dtype,
        "n_backward": segment.micro,
        "root_sum": segment.root_sum,
        "lr": segment.lr,
        "scale": segment.scale,
        "autocast_dtype": segment.autocast_dtype,
        "autocast_device": segment.autocast_device,
        "level": segment.level,
        "host_rss": resident_bytes() if segment.sampled else None,
        "device_allocated": device_allocated(),
        "own_s": segment.own_s,
    }
