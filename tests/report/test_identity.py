from __future__ import annotations

import socket

from ampscope.report.identity import redactor_for
from ampscope.trace.reader import Trace
from tests.report.handmade import CWD, PARAMETERS, SECRET, TRAIN


def test_the_directories_and_people_of_the_run_are_known(trace: Trace) -> None:
    redactor = redactor_for(trace)
    assert redactor.text(f"alice ran {TRAIN} --token {SECRET}") == "<user> ran train.py --token <secret>"
    assert redactor.path(CWD) == "."
    assert redactor.text(f"on {socket.gethostname()}") in ("on <host>", f"on {socket.gethostname()}")
    assert tuple(redactor.hosts) == tuple(sorted({socket.gethostname(), socket.getfqdn()}))


def test_the_names_of_the_model_are_known(trace: Trace) -> None:
    redactor = redactor_for(trace)
    assert {*PARAMETERS, "blocks.1.norm", "aten::sum", "GradScaler#0"} <= set(redactor.keep)


def test_nothing_is_looked_up_when_nothing_is_to_be_removed(trace: Trace) -> None:
    redactor = redactor_for(trace, enabled=False)
    assert redactor.text(TRAIN) == TRAIN
    assert redactor.removed == ()
