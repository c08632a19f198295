"""Judges an underflow sample by the policy, in the words that the underflow rules share."""

from __future__ import annotations

import math

from ampscope.diagnose.finding import Evidence, Severity, Where
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import at_module, percent, sci
from ampscope.diagnose.underflow import Loss, Sample, typical, within


def starving(
    s: Signals, scale: float | None, *, worst: bool = False, opt: str | None = None
) -> Sample | None:
    """The typical sample at a loss scale, or the worst of all, when it loses enough of its gradients to matter;
    else None. With `opt` only what that optimizer lost counts.

    Enough is a share of the elements and, where the float32 recompute tells, of their energy: a flushed tail
    of tiny elements beside large ones leaves the direction of the gradient as it was.
    """
    samples = s.underflow if opt is None else within(s.underflow, opt, _modules(s, opt))
    sample = max(samples, key=lambda x: x.share, default=None) if worst else typical(samples, scale)
    if sample is None or sample.share < s.policy.flushed_warning:
        return None
    if sample.elements < s.policy.underflow_min_elements:
        return None
    if sample.sqnr_db is not None and sample.sqnr_db > s.policy.lossy_sqnr_db:
        return None
    return sample


def _modules(s: Signals, opt: str) -> frozenset[str]:
    """Modules that hold parameters of an optimizer."""
    held = s.params[s.params["owner"].eq(opt)]
    return frozenset(held["module"].dropna().astype(str))


def severity_of(s: Signals, sample: Sample) -> Severity:
    return "critical" if sample.share >= s.policy.flushed_critical else "warning"


def span(s: Signals) -> tuple[int, int] | None:
    """First and last step at which underflow was looked for."""
    steps = [x.step for x in s.underflow]
    return (min(steps), max(steps)) if steps else None


def where_lost(s: Signals, loss: Loss | None) -> Where:
    """The place of the worst loss, over all steps looked at."""
    if loss is None:
        return Where(steps=span(s))
    return Where(module=loss.module, op=loss.op, file=loss.file, line=loss.line, steps=span(s))


def lost_phrase(sample: Sample) -> str:
    """`31 % of the fp16 gradient elements become zero (worst: 72 % in blocks.0)`."""
    worst = sample.worst
    about = "" if sample.basis == "observed" else "an estimated "
    phrase = f"{about}{percent(sample.share)} of the fp16 gradient elements become zero"
    if worst is not None and worst.share > sample.share:
        line = f"line {worst.line}" if worst.line else worst.op
        place = at_module(worst.module) if worst.module else line
        phrase += f" (worst: {percent(worst.share)} in {place})" if place else ""
    return phrase


def room_phrase(sample: Sample) -> str:
    """How far the largest gradient lies below 65504."""
    if sample.headroom is None:
        return "every sampled fp16 gradient is zero"
    return f"the largest is {sci(sample.amax)}, {sample.headroom:.1f} binades below 65504"


def scale_for(sample: Sample, slack_binades: float, largest: float) -> float:
    """The power-of-two loss scale that leaves `slack_binades` above the largest gradient, at most `largest`."""
    if sample.headroom is None:
        return largest
    steps = math.floor(sample.headroom - slack_binades)
    return float(min(largest, (sample.scale or 1.0) * 2.0**steps))


def flush_evidence(s: Signals, sample: Sample) -> list[Evidence | None]:
    """The numbers behind a loss, each with its query."""
    where = f"rank = {sample.rank} AND segment = {sample.segment}"
    half = f"phase = 'backward' AND list_contains(out_dtypes, 'float16') AND {where}"
    if sample.basis != "observed":
        gradients = (
            f"FROM tensors WHERE dtype = 'float16' AND role IN ('grad', 'activation_grad') AND {where}"
        )
        share = Evidence("flushed share of fp16 gradients", sample.share, "", "estimated", "")
        return [share, s.measure("largest fp16 gradient", f"SELECT max(amax) {gradients}")]
    numel = "list_product(list_transform(string_split(out_shapes[1], 'x'), lambda n: CAST(n AS DOUBLE)))"
    counted = f"FROM ops WHERE {half} AND shadow_flushed IS NOT NULL AND out_shapes[1] <> ''"
    return [
        s.measure(
            "flushed share of fp16 gradients",
            f"SELECT sum(shadow_flushed) / sum({numel} - out_zeros + shadow_flushed) {counted}",
        ),
        s.measure("elements that became zero", f"SELECT sum(shadow_flushed) {counted}", "elements"),
        s.measure("worst SQNR of a backward op", f"SELECT min(shadow_sqnr_db) {counted}", "dB"),
        s.measure("largest fp16 gradient", f"SELECT max(out_amax) {counted}"),
    ]
