"""Two recorded runs compared: set-up, headline, losses, the first tensor that diverges, findings."""

from __future__ import annotations

from dataclasses import dataclass

from ampscope.compare.config import Setting, differences
from ampscope.compare.divergence import Joined, join
from ampscope.compare.headline import Headline, headline
from ampscope.compare.losses import Curves, curves
from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.finding import Finding
from ampscope.trace.reader import Trace


@dataclass(frozen=True)
class Comparison:
    """`names` are the run directories; `only_one` and `only_two` the findings that the other run has not, by
    code and place; `apart` is the first step whose losses differ by more than rounding."""

    names: tuple[str, str]
    headlines: tuple[Headline, Headline]
    settings: tuple[Setting, ...]
    curves: Curves
    apart: int | None
    joined: Joined
    only_one: tuple[Finding, ...]
    only_two: tuple[Finding, ...]
    verdicts: tuple[str, str]


def compare_runs(one: Trace, two: Trace) -> Comparison:
    """Compare two opened traces."""
    joined = join(one, two)
    losses = curves(one, two)
    found = diagnose(one), diagnose(two)
    keys = [{_key(f) for f in d.findings} for d in found]
    return Comparison(
        names=(str(one.path), str(two.path)),
        headlines=(headline(one), headline(two)),
        settings=differences(one, two),
        curves=losses,
        apart=losses.first_apart(joined.tolerance),
        joined=joined,
        only_one=tuple(f for f in found[0].findings if _key(f) not in keys[1]),
        only_two=tuple(f for f in found[1].findings if _key(f) not in keys[0]),
        verdicts=(found[0].verdict, found[1].verdict),
    )


def _key(finding: Finding) -> tuple[object, ...]:
    """What and where, by what a moved line does not change."""
    where = finding.where
    return (finding.code, where.module, where.tensor, where.op)
