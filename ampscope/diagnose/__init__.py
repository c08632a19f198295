"""Says what is wrong with a recorded run, proves it with numbers and says what to change. Reads traces only."""

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, NotMeasurable, RunSummary, Silenced
from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.finding import Abstain, Change, Evidence, Finding, Severity, Where
from ampscope.diagnose.rule import Rule, all_rules, find_rule

__all__ = [
    "Abstain",
    "Change",
    "Coverage",
    "Diagnosis",
    "Evidence",
    "Finding",
    "NotMeasurable",
    "Rule",
    "RunSummary",
    "Severity",
    "Silenced",
    "Where",
    "all_rules",
    "diagnose",
    "find_rule",
]
