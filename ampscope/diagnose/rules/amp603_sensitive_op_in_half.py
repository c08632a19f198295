"""Softmax, normalisation, a loss or a long reduction runs in half precision although autocast would not have it so.

## How it shows
Mostly nothing; at worst a loss that moves in steps, probabilities that are exactly 0 or 1, gradients of confident
examples that are exactly zero, statistics with two digits.

## Why it happens
Autocast keeps such ops in float32 (on CUDA; its CPU list is shorter), because they add up many terms or lose digits in
a difference. `model.half()`, `model.to(torch.bfloat16)`, a region with autocast switched off or a custom function
bypass that list: the op runs in the dtype of its inputs.

## Fix
```diff
- loss = F.cross_entropy(model(x), y)                # logits and loss in half
+ loss = F.cross_entropy(model(x).float(), y)
```

## What would refute it
Recomputed in float32 from the same inputs, the op gives the same result within half a unit in the last place.

## Source
[torch.amp op reference](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference)
"""

from __future__ import annotations

import pandas as pd

from ampscope.diagnose.finding import Abstain, Change, Evidence, Finding, Where
from ampscope.diagnose.frames import text, whole
from ampscope.diagnose.rule import SYMPTOM, Found, Rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed

SENSITIVE = (
    "_softmax _log_softmax _safe_softmax logsumexp native_layer_norm native_group_norm _fused_rms_norm "
    "native_batch_norm linalg_vector_norm norm var var_mean std sum mean cumsum prod nll_loss_forward "
    "nll_loss2d_forward mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy "
    "binary_cross_entropy_with_logits"
).split()
REDUCTIONS = "sum mean cumsum prod var var_mean std norm linalg_vector_norm".split()
"""Of these only long ones are meant."""

LONG = 4096
"""Terms of a reduction beyond which the digits of a half sum are used up."""


def _listed(names: list[str]) -> str:
    """Names of ops as an SQL list."""
    return ", ".join(f"'aten::{n}'" for n in names)


_TERMS = (
    "list_product(list_transform(string_split(coalesce(nullif(in_shapes[1], ''), '1'), 'x'), "
    "lambda n: CAST(n AS DOUBLE)))"
)
_FROM = (
    f"FROM ops WHERE phase IN ('forward', 'recompute') AND op IN ({_listed(SENSITIVE)}) AND "
    "in_dtypes[1] IN ('float16', 'bfloat16') AND out_dtypes[1] IN ('float16', 'bfloat16') AND "
    "coalesce(out_nonfinite, 0) = 0"
)
"""Sensitive ops in half with finite results: overflow has its own diagnoses."""


@rule("AMP603", "sensitive-op-in-half", "info", needs=("ops",), depth=SYMPTOM)
def sensitive_op_in_half(rule: Rule, s: Signals) -> Found:
    """Sensitive ops whose inputs and results are half where autocast was off, or whose result float32 contradicts."""
    if not s.half_ops("float16") and not s.half_ops("bfloat16"):
        return
    rows = s.frame(
        f"SELECT op, module, file, line, step, in_dtypes[1] AS dtype, shadow_sqnr_db AS sqnr {_FROM} AND "
        f"(op NOT IN ({_listed(REDUCTIONS)}) OR {_TERMS} >= {LONG}) ORDER BY rank, proc, segment, seq "
        f"LIMIT {s.policy.max_op_rows}"
    )
    if rows.empty:
        return
    lossy = rows[rows["sqnr"].lt(s.policy.lossy_sqnr_db)]
    outside = rows[~_under_autocast(s, rows)]
    if len(lossy):
        yield _finding(rule, s, lossy, lossy=True)
    elif len(outside):
        yield _finding(rule, s, outside, lossy=False)
    elif rows["sqnr"].isna().all():
        yield Abstain("no sensitive op in half was recomputed in float32")


def _under_autocast(s: Signals, rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether each op ran where autocast was on: by its module, or by the step for code outside modules."""
    on = dict(zip(s.modules["name"].astype(str), s.modules["autocast_dtype"].notna(), strict=True))
    default = bool(s.steps["autocast_dtype"].notna().any())
    return (
        rows["module"]
        .map(lambda name: on.get(str(name), default) if name is not None else default)
        .astype(bool)
    )


def _finding(rule: Rule, s: Signals, rows: pd.DataFrame, *, lossy: bool) -> Finding:
    first = rows.sort_values("sqnr", kind="stable").iloc[0] if lossy else rows.iloc[0]
    op = str(first["op"]).removeprefix("aten::")
    names = list(dict.fromkeys(str(o).removeprefix("aten::").lstrip("_") for o in rows["op"]))
    claim = f"{listed(names)} {'runs' if len(names) == 1 else 'run'} in {first['dtype']}"
    if lossy:
        claim += f": recomputed in float32 the result has a signal-to-noise ratio of {first['sqnr']:.0f} dB"
    else:
        claim += " where autocast, which would keep them in float32 on a GPU, is off"
    return rule.finding(
        Where(
            module=text(first["module"]),
            op=op,
            file=text(first["file"]),
            line=whole(first["line"]),
            steps=(int(rows["step"].min()), int(rows["step"].max())),
        ),
        f"{claim}.",
        "Run these ops in float32: `.float()` on their inputs, or autocast instead of a model in half.",
        severity="warning" if lossy else "info",
        evidence=(
            s.measure("sensitive ops in half in the censuses", f"SELECT count(*) {_FROM}", "ops"),
            Evidence("lowest signal-to-noise ratio against float32", float(first["sqnr"]), "dB")
            if lossy
            else None,
        ),
        falsifier="Recomputed in float32 from the same inputs, these ops give the same results.",
        change=Change(diff="- loss = criterion(model(x), y)\n+ loss = criterion(model(x).float(), y)"),
    )
