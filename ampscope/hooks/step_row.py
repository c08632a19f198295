"""The row of `steps` that sums up one segment."""

from __future__ import annotations

from ampscope.hooks.clock import PHASES, Row, Segment

NOT_MEASURED: dict[str, float | None] = dict.fromkeys(PHASES)


RESTED: Row = {
    "phase": "other",
    "outcome": "stepped",
    "skipped": False,
    "level": "count",
}
"""What all steps of a rest have in common: their losses, backwards and phases were not seen."""


def step_columns(segment: Segment, run_began: float) -> Row:
    """Columns of a segment that has ended and waits for no value; `run_began` as time.perf_counter gave it."""
    losses = segment.losses
    spent = NOT_MEASURED if segment.counted else segment.spent
    return {
        "phase": "other",
        "micro": segment.micro,
        "outcome": segment.outcome,
        "skipped": segment.outcome == "skipped",
        "t_start": segment.began - run_began,
        "duration_s": segment.ended - segment.began,
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
        "host_rss": segment.host_rss,
        "device_allocated": segment.device_allocated,
        "own_s": segment.own_s,
        **segment.device_s,
    }
