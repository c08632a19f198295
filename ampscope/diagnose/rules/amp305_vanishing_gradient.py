"""Gradients vanish towards the first layers, below what float32 could use, before any of them is flushed: no fault of
precision.

## How it shows
The first layers do not learn in fp16, and neither do they in bfloat16 or float32. A higher loss scale changes nothing.

## Why it happens
Each layer multiplies the gradient by a factor below one (saturated sigmoid or tanh, weights initialised too small, no
normalisation, no skip connections). After twenty layers of 0.1 it is 1e-20. A loss scale moves all of them up
together; it cannot make the first ones large enough to matter beside their weights.

## Fix
```diff
- layers += [nn.Linear(d, d), nn.Sigmoid()]
+ layers += [nn.Linear(d, d), nn.LayerNorm(d), nn.GELU()]
```
Look at initialisation, normalisation, activations and skip connections.

## What would refute it
Recorded in float32, the gradients of the first layers are as large as those of the last.

## Source
[Hochreiter et al., Gradient flow in recurrent nets, 2001](https://www.bioinf.jku.at/publications/older/ch7.pdf);
[Glorot and Bengio, AISTATS 2010](https://proceedings.mlr.press/v9/glorot10a.html)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ampscope.diagnose.families import UNDERFLOW
from ampscope.diagnose.finding import Abstain, Where
from ampscope.diagnose.rule import ROOT, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import percent, sci

SMALLEST_NORMAL = 2.0**-14
"""Below this an fp16 gradient loses bits and then itself: only larger ones tell what the gradient was before."""
STAGES = {"pre_unscale": 0, "pre_clip": 1, "post_clip": 2}


@dataclass(frozen=True)
class Profile:
    """True sizes of the gradients of one step from the loss inwards. `measured`: not touched by flushing."""

    step: int
    names: tuple[str, ...]
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]]
    measured: np.ndarray[tuple[int], np.dtype[np.bool_]]


@rule(
    "AMP305",
    "vanishing-gradient",
    "warning",
    needs=("tensors",),
    explains=(*UNDERFLOW, "AMP203", "AMP205", "AMP206", "AMP115"),
    depth=ROOT,
)
def vanishing_gradient(rule: Rule, s: Signals) -> Found:
    """In most samples the gradients fall steadily from the loss inwards, to sizes that no precision can use."""
    profiles = _profiles(s)
    if not profiles:
        yield Abstain("no gradient was sampled at the range level with a known scale")
        return
    judged = [(p, share) for p in profiles if (share := _vanished(s, p)) is not None]
    if 2 * len(judged) <= len(profiles):
        return
    profile, share = judged[0]
    seen = profile.sizes[profile.measured]
    inner, outer = float(seen.min()), float(seen[0])
    name = profile.names[int(np.flatnonzero(profile.measured)[int(np.argmin(seen))])]
    yield rule.finding(
        Where(tensor=profile.names[-1], steps=(profiles[0].step, profiles[-1].step)),
        f"Without the loss scale the gradients fall from {sci(outer)} ({profile.names[0]}) to "
        f"{sci(inner)} ({name}) layer "
        f"by layer, before anything is flushed; for {percent(share)} of the parameters they are below "
        f"{sci(s.policy.vanishing_size)}, too small for float32 as well. Precision is innocent.",
        "Look at initialisation, normalisation, activations and skip connections: a loss scale or "
        "another precision does "
        "not help.",
        evidence=(
            s.measure(
                "largest gradient nearest the loss, without the loss scale",
                f"SELECT max(amax / scale) FROM tensors WHERE role = 'grad' AND step = {profile.step} "
                "AND scale > 0 AND "
                f"name = '{profile.names[0]}'",
            ),
            s.measure(
                "smallest of those that were not flushed, without the loss scale",
                f"SELECT max(amax / scale) FROM tensors WHERE role = 'grad' AND step = {profile.step} "
                "AND scale > 0 AND "
                f"name = '{name}'",
            ),
        ),
        falsifier="Recorded in float32, the gradients of the first layers are as large as those of the last.",
    )


def _profiles(s: Signals) -> list[Profile]:
    rows = s.tensors("grad")
    rows = rows[rows["scale"].gt(0) & rows["amax"].notna()]
    if rows.empty:
        return []
    order = _backward_order(s)
    rows = rows.assign(
        rank_of_stage=rows["stage"].map(STAGES).fillna(3),
        place=rows["name"].map(order) if order else -rows["order"],
        true=rows["amax"].astype(float) / rows["scale"].astype(float),
    )
    rows = rows[rows["place"].notna() & np.isfinite(rows["true"])]
    found = []
    for _, sample in rows.groupby(["rank", "segment"], sort=True):
        best = sample.sort_values(["rank_of_stage", "place"]).drop_duplicates("name").sort_values("place")
        found.append(_profile(best))
    return found


def _profile(sample: pd.DataFrame) -> Profile:
    """fp16 work flushes below 2^-24: what is that small in it says only how large the gradient is at most."""
    raw = sample["amax"].to_numpy(dtype=float)
    scale = sample["scale"].to_numpy(dtype=float)
    fp16 = bool((scale > 1.0).any()) or bool(sample["dtype"].eq("float16").any())
    measured = raw > (SMALLEST_NORMAL if fp16 else 0.0)
    sizes = np.where(measured, raw, np.where(fp16, SMALLEST_NORMAL, 0.0)) / scale
    return Profile(int(sample["step"].iloc[0]), tuple(sample["name"].astype(str)), sizes, measured)


def _backward_order(s: Signals) -> dict[str, int]:
    """Parameters in the order in which the first complete backward fed them: nearest the loss first."""
    for call in s.calls:
        if call.call == "backward" and call.error is None and call.params:
            return {name: i for i, name in enumerate(call.params)} if call.all_params_named else {}
    return {}


def _vanished(s: Signals, p: Profile) -> float | None:
    """Share of the parameters whose gradients vanished; None when they did not, or not layer by layer."""
    policy = s.policy
    seen = p.sizes[p.measured]
    if len(seen) < 4 or len(p.sizes) < 6 or seen[0] <= 0.0 or not (seen > 0.0).all():
        return None
    inner = p.sizes[len(p.sizes) // 2 :]
    if (
        not (inner < policy.vanishing_size).any()
        or seen.min() / seen[: max(1, len(seen) // 4)].max() > policy.vanishing_ratio
    ):
        return None
    places = np.flatnonzero(p.measured)
    trend = float(np.corrcoef(places, np.log10(seen))[0, 1])
    share = float((p.sizes < policy.vanishing_size).mean())
    return share if trend <= -0.7 and share >= policy.vanishing_share else None
