"""How many steps it takes to decide: after how many a finding was there to see."""

from __future__ import annotations

from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.finding import Finding
from ampscope.diagnose.rule import find_rule
from ampscope.diagnose.signals import TraceView
from ampscope.rerun.prefix import Prefix

LEAST = 48
"""A scaler may take 24 steps to find its scale, halving from 2^16 to 2^-8; as many show what comes after."""

MARGIN = 2
"""The re-run goes on for this many times the steps after which the finding showed: something that is late
without the change may come later with it."""


def first_seen(trace: TraceView, finding: Finding, total: int) -> int:
    """The smallest power of two of steps, at most `total`, after which the rule already finds it."""
    rule = find_rule(finding.code)
    steps = 1
    while rule is not None and steps < total:
        if diagnose(Prefix(trace, steps), rules=[rule]).findings:
            return steps
        steps *= 2
    return total


def steps_to_decide(trace: TraceView, finding: Finding, total: int) -> int:
    """How many steps the re-run has to take."""
    return max(LEAST, MARGIN * first_seen(trace, finding, total))
