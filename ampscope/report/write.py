"""Makes the report of an opened trace and turns it into bytes of one format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ampscope import __version__
from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.diagnose.rule import all_rules
from ampscope.report import bundle, html, json, markdown
from ampscope.report.collect import Source, collect
from ampscope.report.identity import redactor_for
from ampscope.report.model import Report
from ampscope.report.redact import Redactor
from ampscope.report.redacted import redacted
from ampscope.verify.outcome import read_outcomes

FORMATS: Mapping[str, str] = {"md": "Markdown", "html": "HTML", "json": "JSON", "zip": "zip"}


@dataclass(frozen=True)
class Made:
    """A report and the redactor that it went through."""

    report: Report
    redactor: Redactor


def make(trace: Source, diagnosis: Diagnosis, redact: bool = True) -> Made:
    """The report of `trace`, redacted unless told otherwise."""
    names = {rule.code: rule.name for rule in all_rules()}
    report = collect(trace, diagnosis, names, f"ampscope {__version__}", read_outcomes(trace.path))
    redactor = redactor_for(trace, redact)
    return Made(redacted(report, redactor), redactor)


def to_bytes(made: Made, trace: Source, format: str) -> bytes:
    """The report in one of FORMATS, UTF-8. Raises KeyError for another format."""
    if format == "zip":
        return bundle.write(made.report, trace, made.redactor)
    render = {"md": markdown.render, "html": html.render, "json": json.render}[format]
    return render(made.report).encode("utf-8")
