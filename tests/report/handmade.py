"""A recorded run made by hand, with every table filled and every number known, and the diagnosis that goes with it."""

from __future__ import annotations

import math
from pathlib import Path

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, NotMeasurable, RunSummary
from ampscope.diagnose.finding import Change, Evidence, Finding, Where
from ampscope.report.redact import Redactor
from ampscope.trace.records import DeviceInfo, ProcessInfo, RunInfo
from ampscope.trace.runinfo import COMPLETE_FILE, claim_process, write_run
from ampscope.trace.writer import TraceWriter

HOME = "/home/alice"
CWD = f"{HOME}/proj x"
TRAIN = f"{CWD}/train.py"
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUvWx"
SKIPPED = (0, 1, 2, 60)
STEPS = 120
PARAMETERS = ("head.weight", "blocks.1.attn.weight", "blocks.0.attn.weight", "embed.weight")
GENERATOR = "ampscope 9.9 (test)"
NAMES = {
    "AMP101": "clip-before-unscale",
    "AMP403": "half-reduction-overflow",
    "AMP201": "loss-scale-collapse",
}

Rows = list[dict[str, object]]


def key(step: int) -> dict[str, object]:
    return {"step": step, "segment": step, "micro": 0, "proc": 0, "opt": "AdamW#0", "opt_step": step}


def scale_at(step: int) -> float:
    """Scale in force: halved after every skip."""
    return math.ldexp(65536.0, -sum(s < step for s in SKIPPED))


def step_rows() -> Rows:
    rows: Rows = []
    for step in range(STEPS):
        skipped = step in SKIPPED
        rows.append(
            {
                **key(step),
                "outcome": "skipped" if skipped else "stepped",
                "skipped": skipped,
                "t_start": 0.01 * step,
                "duration_s": 0.01,
                "data_s": 0.001,
                "forward_s": 0.003,
                "backward_s": 0.004,
                "unscale_s": 0.0005,
                "optimizer_s": 0.0015,
                "loss": math.nan if step == 1 else 3.0 * math.exp(-step / 40) + 3e-8,
                "loss_dtype": "float32",
                "lr": 1e-3,
                "scale": scale_at(step),
                "autocast_dtype": "float16",
                "level": "range" if step % 5 == 0 else "pulse",
                "own_s": 0.0001,
            }
        )
    return rows


def tensor_rows(names: tuple[str, ...] = PARAMETERS) -> Rows:
    rows: Rows = []
    for step in range(0, STEPS, 5):
        for order, name in enumerate(names):
            top = 8 - 10 * order
            counts = [1 + (i * 7 + step) % 13 for i in range(20)]
            rows.append(
                {
                    **key(step),
                    "phase": "backward",
                    "name": name,
                    "module": name.rpartition(".")[0],
                    "role": "grad",
                    "stage": "pre_unscale",
                    "scaled": True,
                    "scale": scale_at(step),
                    "basis": "observed",
                    "order": order,
                    "dtype": "float32",
                    "numel": sum(counts) + 30,
                    "zeros": 28,
                    "nan": 0,
                    "posinf": 2 if step in SKIPPED else 0,
                    "neginf": 0,
                    "amax": 1.5 * 2.0**top,
                    "hist_lo": top - 19,
                    "hist": counts,
                }
            )
        rows.append(
            {
                **key(step),
                "phase": "forward",
                "name": "blocks.1.norm:out",
                "module": "blocks.1.norm",
                "role": "activation",
                "basis": "observed",
                "dtype": "float16",
                "numel": 4096,
                "nan": 0,
                "posinf": 0,
                "neginf": 0,
                "amax": 500.0 * 1.03**step,
                "hist_lo": 0,
                "hist": [4096],
            }
        )
    return rows


def update_rows(names: tuple[str, ...] = PARAMETERS) -> Rows:
    return [
        {
            **key(step),
            "phase": "optimizer",
            "name": name,
            "module": name.rpartition(".")[0],
            "dtype": "bfloat16" if order == 0 else "float32",
            "numel": 1000,
            "grad_nonzero": 1000,
            "unchanged": 930 - 5 * (step % 3) if order == 0 else 10,
            "absorbed_fp16": 40 * order,
            "absorbed_bf16": 200 + 40 * order,
            "moved": 1000,
            "below_2_11": 300,
            "below_2_8": 700,
            "update_norm": 3e-8,
            "weight_norm": 2.0,
            "lr": 1e-3,
        }
        for step in range(5, STEPS, 5)
        for order, name in enumerate(names)
    ]


def op_rows() -> Rows:
    ops = (
        ("aten::mm", 1e9, 40.0, 900.0, 0),
        ("aten::mul", None, 900.0, 4e4, 0),
        ("aten::sum", None, 4e4, None, 3),
    )
    return [
        {
            **key(step),
            "seq": i,
            "phase": "forward",
            "op": op,
            "module": "blocks.1.norm",
            "in_dtypes": ["float16", "float16"],
            "out_dtypes": ["float16"],
            "flops": flops,
            "host_s": 1e-4,
            "in_amax": low,
            "out_amax": high,
            "out_nonfinite": bad,
            "shadow_amax": 9.1e4 if bad else None,
            "file": TRAIN,
            "line": 41,
        }
        for step in (1, 2)
        for i, (op, flops, low, high, bad) in enumerate(ops)
    ]


def call_rows() -> Rows:
    calls = (
        ("backward", "loss", None, "scaled", 3.0, 29),
        ("clip_grad_norm_", None, None, "scaled", 51234.0, 31),
        ("scaler.step", "GradScaler#0", "AdamW#0", None, 65536.0, 32),
        ("scaler.update", "GradScaler#0", None, None, 65536.0, 33),
    )
    return [
        {
            **key(step),
            "seq": 4 * step + i,
            "t": 0.01 * step,
            "call": call,
            "object": owner,
            "target": target,
            "scaled": scaled,
            "value": value,
            "file": TRAIN,
            "line": line,
        }
        for step in range(4)
        for i, (call, owner, target, scaled, value, line) in enumerate(calls)
    ]


def nonfinite_rows() -> Rows:
    return [
        {
            **key(step),
            "phase": "backward",
            "name": name,
            "role": "grad",
            "order": order,
            "numel": 1000,
            "nan": 1,
            "posinf": 4,
            "neginf": 0,
            "scale": scale_at(step),
        }
        for step in SKIPPED
        for order, name in enumerate(PARAMETERS[:2])
    ]


def write_rows(writer: TraceWriter) -> None:
    writer.add("steps", step_rows())
    writer.add("tensors", tensor_rows())
    writer.add("updates", update_rows())
    writer.add("ops", op_rows())
    writer.add("calls", call_rows())
    writer.add("nonfinite", nonfinite_rows())
    writer.add(
        "scaler",
        [
            {
                **key(step),
                "scaler": "GradScaler#0",
                "scale": scale_at(step),
                "scale_after": scale_at(step + 1),
                "found_inf": step in SKIPPED,
                "skipped": step in SKIPPED,
            }
            for step in range(STEPS)
        ],
    )
    writer.add(
        "ledger",
        [
            {
                **key(0),
                "collector": "ranges",
                "host_s": 0.01,
                "calls": 3,
                "why": "every 5 steps: 0.9 % of wall time",
            }
        ],
    )
    writer.add(
        "events",
        [
            {
                **key(119),
                "t": 1.2,
                "event": "exception",
                "level": "error",
                "subject": "RuntimeError",
                "message": f"cannot reach https://alice:{SECRET}@hub.corp.example/x from gpu-07",
                "traceback": f'Traceback:\n  File "{TRAIN}", line 50, in <module>\n    push()\nRuntimeError: no',
                "file": TRAIN,
                "line": 50,
            }
        ],
    )


def write_records(run: Path) -> None:
    info = RunInfo(
        version="0.1.0",
        command=(
            f"{HOME}/env/bin/python",
            TRAIN,
            "--lr",
            "1e-3",
            "--token",
            SECRET,
            f"--data={HOME}/data/x.bin",
        ),
        cwd=CWD,
        python="3.11.2",
        start="2026-11-29T11:02:04.000Z",
        end="2026-11-29T11:02:09.000Z",
        exit_status=1,
        settings={"run_dir": str(run), "level": "watch", "every": 5, "budget": 2.0, "overrides": {}},
    )
    write_run(run, info)
    claim_process(
        run,
        0,
        ProcessInfo(
            pid=4242,
            script=TRAIN,
            python="3.11.2",
            torch="2.13.0",
            platform="Linux-6.1-x86_64",
            cpu_model="Example CPU",
            cpu_capability="AVX2",
            bf16_native=True,
            devices=(DeviceInfo(name="Example GPU", type="cuda", capability="9.0"),),
            num_threads=1,
            start=info.start,
            end=info.end,
            state="ended",
            versions={"numpy": "2.3.0"},
            sources={TRAIN: "ab12"},
        ),
    )
    (run / COMPLETE_FILE).touch()


def redactor() -> Redactor:
    """What knows whose run this is."""
    return Redactor(roots=(CWD,), home=HOME, users=("alice",), hosts=("gpu-07",), keep=PARAMETERS)


def make_run(run: Path) -> None:
    """Record the hand-made run into the new directory `run`."""
    run.mkdir()
    writer = TraceWriter(run, strict=True)
    write_rows(writer)
    assert writer.close()
    write_records(run)


def make_diagnosis(*findings: Finding) -> Diagnosis:
    run = RunSummary(("python",), "", "complete", 1, None, STEPS, 4, 1, "2.13.0", "cuda", True, "0.1.0")
    found = findings or FINDINGS
    coverage = Coverage(
        fired=tuple(f.code for f in found),
        clean=("AMP201",),
        not_measurable=(NotMeasurable("AMP701", "no CUDA device took part"),),
    )
    verdict = "AMP101 clip-before-unscale at train.py:31: call `scaler.unscale_(optimizer)` before clipping."
    return Diagnosis(run, verdict, found, coverage, symptoms=("The loss was NaN at step 1.",))


FINDINGS = (
    Finding(
        code="AMP101",
        name="clip-before-unscale",
        severity="critical",
        where=Where(op="clip_grad_norm_", file=TRAIN, line=31, steps=(0, 119)),
        claim="clip_grad_norm_ saw gradients multiplied by the loss scale 65536 in 120 of 120 steps: the norm it "
        "returned was 51234, the true norm 0.78.",
        recommendation="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
        change=Change(
            diff="--- train.py\n+++ train.py\n@@ -29,3 +29,4 @@\n     scaler.scale(loss).backward()\n"
            "+    scaler.unscale_(optimizer)\n     clip_grad_norm_(model.parameters(), 1.0)"
        ),
        evidence=(
            Evidence("clip calls on scaled gradients", 4, "calls", "observed", "SELECT count(*) FROM calls"),
            Evidence(
                "true norm",
                0.78,
                "",
                "estimated",
                f"SELECT value FROM calls WHERE file = '{TRAIN}' AND line = 31",
            ),
        ),
        falsifier="a norm that does not fall when the scale is lowered",
        symptoms=("Updates are 3e-8 of the weights.",),
    ),
    Finding(
        code="AMP403",
        name="half-reduction-overflow",
        severity="warning",
        where=Where(module="blocks.1.norm", op="aten::sum", file=TRAIN, line=41, steps=(1, 2)),
        claim="aten::sum in blocks.1.norm returned inf from finite float16 inputs of at most 4e4; float32 gives 9.1e4.",
        recommendation="Reduce in float32.",
        change=Change(set={"module.fp32": "blocks.1.norm"}),
        evidence=(
            Evidence("non-finite outputs", 3, "elements", "observed", "SELECT sum(out_nonfinite) FROM ops"),
        ),
    ),
)
