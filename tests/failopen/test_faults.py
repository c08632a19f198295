"""A fault in any entry of any collector: training goes on to the last bit, the user reads one clear line for each
collector that is off, the trace has one event for it, and what was kept is readable.

The points are found by looking at the package (`faults.py`). By default those are tried through which torch, the
session or the user's program enters the recorder; `-m thorough` tries every function that a run reaches, from its
first call on and once in the middle.
"""

from __future__ import annotations

import re

import pytest

from ampscope.trace.reader import open_trace
from tests.failopen.conftest import CarryOut, Left
from tests.failopen.faults import Seen, classes, points

BARE = {
    "hooks.dispatch:OpMode.__torch_dispatch__": "the frame that runs the user's op",
    "hooks.modules:Modules._pre": "called by torch at every module; guards what it calls",
    "hooks.modules:Modules._post": "called by torch at every module; guards what it calls",
    "hooks.parameters:Parameters._fed": "called by the engine; appends one number",
    "hooks.patches:Patches.wrap.observed": "the frame that runs the wrapped function; guards what it calls",
    "hooks.quiet:Quiet.__exit__": "brings back the state of the user's thread",
    "hooks.quiet:_leave": "brings back the state of the user's thread",
    "hooks.quiet:is_quiet": "reads one number",
    "hooks.redispatch:": "runs the user's op",
    "hooks.install:stop": "what the interpreter calls at its exit; guards what it calls",
    "hooks.profiler:_end_all": "what the interpreter calls at its exit; guards what it calls",
    "trace.writer:TraceWriter._run_then": "the frame of the writer's thread; guards what it calls",
}
"""Points that cannot fail open, because they are what catches, or run the user's own work. They are kept small."""

SILENT = {
    "hooks.modules:_collect": "an output that cannot be looked into holds no tensors",
    "hooks.tensorfacts:_shape_text": "a tensor that cannot be described is written as ?",
}
"""Points whose failing is an answer."""

LINE = re.compile(
    r"\[ampscope\] (the (?P<name>[\w ]+) collector failed and is off(, and so is the recording)? "
    r"\(.+\); training goes on\."
    r"|.+ imports torch but is not recorded: .+|no trace can be written to .+; training goes on unrecorded\."
    r"|the trace could not be finished \(.+\)\.|.+ \(.+\); training goes on\.)"
)


@pytest.fixture(scope="session")
def plain(carry_out: CarryOut) -> Left:
    """The run that nobody records."""
    (left,) = carry_out({}, recorded=False)
    assert left.status == 0, left.stderr
    return left


@pytest.fixture(scope="session")
def seen(carry_out: CarryOut) -> Seen:
    (left,) = carry_out({"look": True})
    assert (left.status, left.stderr) == (0, "")
    return Seen(set(left.digests["reached"]), set(left.digests["entries"]))


def problems(left: Left, plain: Left, fault: str) -> list[str]:
    """What is wrong with a run into which a fault was put; nothing for most."""
    if left.status != 0:
        return [f"{fault}: the run ended with {left.status}: {left.stderr[-1500:]}"]
    found = []
    if left.digests != plain.digests:
        found.append(f"{fault}: the result is another")
    found += [f"{fault}: not a clear line: {line}" for line in left.lines if not LINE.fullmatch(line)]
    names = [m["name"] for line in left.lines if (m := LINE.fullmatch(line)) and m["name"]]
    if len(set(names)) < len(names):
        found.append(f"{fault}: a collector is told of twice: {names}")
    if left.raised and not left.lines and fault not in SILENT:
        found.append(f"{fault}: met {left.raised} times in silence")
    return found + [f"{fault}: {text}" for text in trace_problems(left, names)]


def trace_problems(left: Left, names: list[str]) -> list[str]:
    with open_trace(left.folder / "run") as trace:
        if not trace.integrity.sound:
            return [trace.integrity.sentence]
        query = "SELECT subject FROM events WHERE event = 'collector_error' AND subject <> 'writer'"
        told = trace.sql(query).subject.tolist() if trace.has("events") else []
    could_write = not any("no trace can be" in line or "not recorded" in line for line in left.lines)
    if could_write and sorted(told) != sorted(names):
        return [f"lines of {names}, events of {told}"]
    return []


def try_all(names: list[str], plain: Left, carry_out: CarryOut, first: int = 1, only: bool = False) -> None:
    names = [name for name in names if not name.startswith(tuple(BARE))]
    if not names:
        return
    lefts = carry_out(*({"fault": name, "first": first, "only": only} for name in names))
    found = [text for name, left in zip(names, lefts, strict=True) for text in problems(left, plain, name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("owner", classes())
def test_training_goes_on(owner: str, plain: Left, seen: Seen, carry_out: CarryOut) -> None:
    """In each collector and each mode: what it registers with torch, what others call it by, and its ends."""
    moments = ("install", "remove", "start", "stop", "before", "after", "segment_start", "segment_end")
    names = [str(p) for p in points() if str(p).split(":")[1].split(".")[0] == owner]
    wanted = [n for n in names if n in seen.reached and (n in seen.entries or n.endswith(moments))]
    try_all(wanted, plain, carry_out)


def test_a_fault_in_the_middle_of_a_run(plain: Left, seen: Seen, carry_out: CarryOut) -> None:
    """Once, at the third call: what began before the fault has to end without its collector."""
    later = ("_post", "_after", "_exit_", "_root_exit_", "_after_step", "_update", "_after_unscale", "after")
    names = [n for n in sorted(seen.entries) if n.rsplit(".", 1)[-1] in later]
    assert len(names) > 6
    try_all(names, plain, carry_out, first=3, only=True)


def test_the_session_and_the_writer(plain: Left, carry_out: CarryOut) -> None:
    names = [
        "hooks.install:_collectors",
        "hooks.session:Session._open",
        "hooks.session:Session._file",
        "hooks.session:Session.emit",
        "hooks.outbox:Outbox.flush",
        "hooks.deferred:DeferredScalars.put",
        "hooks.source:user_place",
        "hooks.collector:dtype_name",
        "hooks.sink:Sink.activate",
        "hooks.sink:Sink.push",
        "numerics.histogram:exponent_histogram",
        "trace.runinfo:claim_process",
        "trace.runinfo:finish_process",
        "trace.encode:part_bytes",
        "trace.store:PartStore.store",
        "trace.files:write_atomic",
        "trace.writer:TraceWriter._run",
    ]
    assert set(names) <= {str(p) for p in points()}
    try_all(names, plain, carry_out)


@pytest.mark.thorough
@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("module", sorted({p.module for p in points()}))
def test_every_function(module: str, only: bool, plain: Left, seen: Seen, carry_out: CarryOut) -> None:
    in_thread = module.startswith("ampscope.trace.")
    names = [str(p) for p in points() if p.module == module and (in_thread or str(p) in seen.reached)]
    try_all(names, plain, carry_out, first=5 if only else 1, only=only)
