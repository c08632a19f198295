"""What anybody would notice about a run without knowing why: skipped steps, a falling scale, NaN, a crash.

Only describes. The engine folds each symptom under the first finding that says it explains that kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import count, pow2, steps_phrase

SKIPS, SCALE_FALL, BAD_LOSS, BAD_WEIGHTS, CRASH = "skips", "scale-fall", "bad-loss", "bad-weights", "crash"
KINDS = (SKIPS, SCALE_FALL, BAD_LOSS, BAD_WEIGHTS, CRASH)


@dataclass(frozen=True)
class Symptom:
    """`kind` is one of KINDS; `step` is where it was first seen. A symptom that is not `alarming` belongs to
    normal running, such as the skips in which a scaler finds its scale, and needs no explanation."""

    kind: str
    sentence: str
    step: int | None
    alarming: bool = True


def symptoms_of(signals: Signals) -> tuple[Symptom, ...]:
    """The general symptoms of a run, in the order of KINDS."""
    found = [
        *_skips(signals),
        *_scale_fall(signals),
        *_bad_loss(signals),
        *_bad_weights(signals),
        *_crash(signals),
    ]
    return tuple(found)


def _skips(signals: Signals) -> Iterator[Symptom]:
    steps = signals.steps
    asked = steps[steps["outcome"].isin(["stepped", "skipped"])]
    skipped = asked[asked["outcome"] == "skipped"]
    if len(skipped):
        first, last = int(skipped["step"].min()), int(skipped["step"].max())
        yield Symptom(
            SKIPS,
            f"{len(skipped)} of {count(len(asked), 'step')} skipped because of non-finite gradients "
            f"({steps_phrase(first, last)}).",
            first,
            alarming=_beyond_search(signals),
        )


def _beyond_search(signals: Signals) -> bool:
    policy = signals.policy
    return any(
        path.leading_skips > policy.warmup_skips or path.unexplained_skips(policy.growth_skip_slack)
        for path in signals.scale_paths
    )


def _scale_fall(signals: Signals) -> Iterator[Symptom]:
    for path in signals.scale_paths:
        top, low, step = path.deepest_fall
        if low <= top / 2**signals.policy.collapse_binades:
            yield Symptom(SCALE_FALL, f"The loss scale fell from {pow2(top)} to {pow2(low)}.", step)


def _bad_loss(signals: Signals) -> Iterator[Symptom]:
    known = signals.steps[signals.steps["loss_known"]]
    bad = known[~np.isfinite(known["loss"].astype(float))]
    if len(bad):
        first = int(bad["step"].iloc[0])
        yield Symptom(
            BAD_LOSS,
            f"The loss is NaN or inf in {len(bad)} of {count(len(known), 'step')}, first at step {first}.",
            first,
        )


def _bad_weights(signals: Signals) -> Iterator[Symptom]:
    bad = signals.nonfinite[signals.nonfinite["role"].isin(["weight", "buffer"])]
    if len(bad):
        row = bad.iloc[0]
        yield Symptom(
            BAD_WEIGHTS,
            f"The {row['role']} {row['name']} holds NaN or inf from step {int(row['step'])} on.",
            int(row["step"]),
        )


def _crash(signals: Signals) -> Iterator[Symptom]:
    ended = signals.events[signals.events["event"] == "exception"]
    if len(ended):
        row = ended.iloc[-1]
        text = str(row["message"] or "").split("\n")[0]
        yield Symptom(
            CRASH,
            f"The run ended with {row['subject']}: {text}",
            None if row.isna()["step"] else int(row["step"]),
        )
