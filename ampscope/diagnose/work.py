"""Where the matrix products of a run were computed: operations by dtype, module and line, from the recorded ops.

Counts floating-point operations and reads profiles; draws no conclusion.
"""

from __future__ import annotations

from dataclasses import dataclass

from ampscope.diagnose.frames import number, records, text, whole
from ampscope.diagnose.signals import HALF, Signals
from ampscope.trace.records import DeviceInfo

PHASES = "phase IN ('forward', 'recompute', 'backward')"

MATMULS = (
    f"FROM ops WHERE flops > 0 AND {PHASES} AND len(out_dtypes) > 0 AND (rank, coalesce(proc, 0), segment) IN "
    "(SELECT (rank, coalesce(proc, 0), segment) FROM steps WHERE autocast_dtype IS NOT NULL)"
)
"""The matrix products and convolutions of forward and backward, in the censuses of steps that ran under autocast."""


@dataclass(frozen=True)
class Work:
    """Matrix products of one module and line: operations in all, in float32 and in half; the largest value that went
    in or came out in the forward (None: not read)."""

    module: str | None
    file: str | None
    line: int | None
    op: str
    flops: float
    float32: float
    half: float
    amax: float | None


def works_of(s: Signals) -> tuple[Work, ...]:
    """Matrix products by module and line, most operations first."""
    if not s.rows["ops"]:
        return ()
    low = ", ".join(f"'{d}'" for d in HALF)
    rows = s.frame(
        "SELECT module, file, line, any_value(op ORDER BY seq) AS op, sum(flops) AS flops, "
        "coalesce(sum(flops) FILTER (out_dtypes[1] = 'float32'), 0) AS f32, "
        f"coalesce(sum(flops) FILTER (out_dtypes[1] IN ({low})), 0) AS half, "
        "max(greatest(in_amax, out_amax)) FILTER (phase <> 'backward') AS amax "
        f"{MATMULS} GROUP BY module, file, line ORDER BY flops DESC, module, file, line"
    )
    return tuple(
        Work(
            text(r["module"]), text(r["file"]), whole(r["line"]), str(r["op"]), number(r["flops"]), number(r["f32"]),
            number(r["half"]), None if r["amax"] != r["amax"] or r["amax"] is None else float(r["amax"]),
        )
        for r in records(rows)
    )  # fmt: skip


def low_dtype(s: Signals) -> str | None:
    """The half dtype of autocast at most forwards that led to a backward; None for a run without."""
    trained = s.steps[s.steps["n_backward"].fillna(0) > 0]["autocast_dtype"].dropna().astype(str)
    found = trained[trained.isin(HALF)]
    return str(found.mode().iloc[0]) if len(found) else None


def span(s: Signals) -> tuple[int, int] | None:
    """First and last step of the run."""
    return None if s.steps.empty else (int(s.steps["step"].min()), int(s.steps["step"].max()))


def gpu_of(s: Signals) -> DeviceInfo | None:
    """The CUDA device that the training ran on; None without one."""
    gpu = next((d for p in s.info.processes for d in p.devices if d.type == "cuda"), None)
    return gpu if s.device == "cuda" else None


@dataclass(frozen=True)
class Matrices:
    """Parameters of two or more dimensions (linear layers, convolutions, embeddings) and the modules that hold them."""

    names: frozenset[str]
    modules: frozenset[str]


def matrices_of(s: Signals) -> Matrices:
    held = s.params[s.params["shape"].fillna("").astype(str).str.contains("x")]
    return Matrices(
        frozenset(held["name"].dropna().astype(str)), frozenset(held["module"].dropna().astype(str))
    )
