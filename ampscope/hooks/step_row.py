"""The row of `steps` that sums up one segment."""

from __future__ import annotations

from collections.abc import Sequence

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


def rested_bundle(
    first: Segment,
    step: int,
    opt_step: int,
    ends: Sequence[float],
    scaled: Sequence[Row],
    common: Row,
    run_began: float,
) -> Segment:
    """The rows of the segments of a rest, in one: a Segment for each would cost several times as much.

    `first` is the first of them, its step and its optimizer's step are `step` and `opt_step`. `ends`: when each ended,
    as time.perf_counter gave it, like `run_began`. `scaled`: the row of `scaler` of each, or none. `common`: further
    columns of all."""
    bundle = Segment(first.index, first.began, level="count", outcome="ended", ended=ends[-1])
    began = first.began
    for i, ended in enumerate(ends):
        key = {"step": step + i, "segment": first.index + i, "opt": common["opt"], "opt_step": opt_step + i}
        row = {**RESTED, **common, **key, "t_start": began - run_began, "duration_s": ended - began}
        if scaled:
            scaled[i].update(key)
            row["scale"] = scaled[i]["scale"]
            bundle.rows.append(("scaler", scaled[i]))
        bundle.rows.append(("steps", row))
        began = ended
    return bundle
