"""Prints the table of the corpus at the end of a session that ran it, whichever worker ran its cases."""

from __future__ import annotations

import json

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                rows += [json.loads(text) for key, text in report.user_properties if key == "corpus"]
    if not rows:
        return
    rows.sort(key=lambda r: str(r["file"]))
    terminalreporter.section("corpus of training scripts")
    for r in rows:
        right = r["rank"] == "1" or (r["healthy"] and not r["false_alarms"])
        mark = "  " if right and not r["false_alarms"] else "! "
        terminalreporter.line(f"{mark}{r['file']:<48} expect {r['expect']:<18} found {r['found']}")
    faults = [r for r in rows if not r["healthy"]]
    healthy = [r for r in rows if r["healthy"]]
    top1 = sum(r["rank"] == "1" for r in faults)
    top3 = sum(r["rank"] in ("1", "2", "3") for r in faults)
    missed = sum(r["rank"] == "missed" for r in faults)
    terminalreporter.line(
        f"{len(faults)} faults: top-1 right {top1}, in top-3 {top3}, missed {missed}, with a false alarm "
        f"{sum(bool(r['false_alarms']) for r in faults)}; {len(healthy)} healthy scripts: with a false alarm "
        f"{sum(bool(r['false_alarms']) for r in healthy)}"
    )
