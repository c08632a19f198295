"""Builds small traces row by row, as a recorded fp16 run of a two-block transformer would look. Tests only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ampscope.trace import liveness
from ampscope.trace.records import ProcessInfo
from ampscope.trace.runinfo import claim_process, create_run, finish_process, finish_run, read_run, write_run
from ampscope.trace.writer import TraceWriter

Row = dict[str, Any]

LEAVES = ("ln1", "attn.qkv", "attn.proj", "ln2", "mlp.fc", "mlp.proj")


def module_names(blocks: int) -> list[str]:
    """Leaf modules in forward order."""
    inner = [f"blocks.{b}.{leaf}" for b in range(blocks) for leaf in LEAVES]
    return ["wte", *inner, "ln_f", "head"]


def histogram(center: float, numel: int, spread: float = 2.0) -> tuple[int, list[int]]:
    """(hist_lo, hist) of about `numel` magnitudes whose log2 is normal around `center`."""
    bins = np.arange(math.floor(center - 4 * spread), math.ceil(center + 4 * spread) + 1)
    weight = np.exp(-0.5 * ((bins + 0.5 - center) / spread) ** 2)
    counts = np.floor(numel * weight / weight.sum()).astype(int)
    counts[len(counts) // 2] += numel - int(counts.sum())
    kept = np.flatnonzero(counts)
    return int(bins[kept[0]]), [int(c) for c in counts[kept[0] : kept[-1] + 1]]


def process_info() -> ProcessInfo:
    """What a training process says of itself."""
    return ProcessInfo(
        script="train.py", torch="2.13.0", platform="Linux-x86_64", cpu_model="Test CPU", num_threads=1,
        versions={"python": "3.11.7", "torch": "2.13.0"},
    )  # fmt: skip


@dataclass
class RunKit:
    """Rows of every table, and what run.json says. `write` makes a run directory of them."""

    steps: int = 40
    blocks: int = 2
    every: int = 2
    grad_center: float = -14.0
    scale0: float = 65536.0
    half: str = "float16"
    nan_from: int | None = None
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def key(self, step: int, phase: str = "other") -> Row:
        return {
            "step": step, "segment": step, "micro": 0, "proc": 0, "phase": phase, "opt": "AdamW#0",
            "opt_step": step,
        }  # fmt: skip

    def scale_at(self, step: int) -> tuple[float, bool]:
        """(scale in force, skipped): two skips at the start, one growth that overflows at step 25."""
        if step < 2:
            return self.scale0 / 2**step, True
        if step < 24:
            return self.scale0 / 4, False
        if step == 24:
            return self.scale0 / 2, True
        return self.scale0 / 4, False

    def build(self) -> RunKit:
        """Fills every table."""
        for step in range(self.steps):
            self._pulse(step)
            if step % self.every == 0:
                self._range(step)
        self._census(1)
        self._params()
        self._rare()
        return self

    def _pulse(self, step: int) -> None:
        scale, skipped = self.scale_at(step)
        bad = self.nan_from is not None and step >= self.nan_from
        self.add(
            "steps", **self.key(step), outcome="skipped" if skipped else "stepped", skipped=skipped,
            t_start=step * 0.05, duration_s=0.05 + 0.01 * (step % 3), data_s=0.004, forward_s=0.016,
            backward_s=0.022, unscale_s=0.001, optimizer_s=0.006,
            loss=math.nan if bad else 4.2 * math.exp(-step / 30) + 0.02 * math.sin(step), loss_dtype="float32",
            n_backward=1, lr=3e-4, scale=scale, autocast_dtype=self.half, autocast_device="cpu",
            level="census" if step == 1 else "range" if step % self.every == 0 else "pulse",
            host_rss=600_000_000 + step * 1000, own_s=0.0007,
        )  # fmt: skip
        self.add(
            "scaler", **self.key(step), scaler="GradScaler#0", scale=scale,
            scale_after=scale / 2 if skipped else scale, found_inf=skipped, skipped=skipped,
            growth_tracker=0 if skipped else step, growth_factor=2.0, backoff_factor=0.5,
            growth_interval=22, init_scale=self.scale0,
        )  # fmt: skip
        if skipped:
            for order, name in enumerate(("head.weight", "ln_f.bias")):
                self.add(
                    "nonfinite", **self.key(step, "backward"), name=name, module=name.rpartition(".")[0],
                    role="grad", order=order, dtype="float32", numel=4096, nan=order, posinf=3, neginf=1,
                    scale=scale, stale=False,
                )  # fmt: skip
        for collector, cost in (("pulse", 0.0002), ("grads", 0.0004), ("census", 0.0001)):
            self.add("ledger", **self.key(step), collector=collector, calls=9, host_s=cost, elements=9000,
                     rows=12, why="every 2 steps keeps the cost under 2 %")  # fmt: skip

    def _tensor(self, step: int, name: str, role: str, center: float, order: int, **more: Any) -> None:
        numel = int(more.pop("numel", 16384))
        zeros, inf = int(more.pop("zeros", numel // 50)), int(more.pop("posinf", 0))
        lo, hist = histogram(center, numel - zeros - inf)
        top = lo + len(hist) - 1
        self.add(
            "tensors", **self.key(step, "backward" if "grad" in role else "forward"), name=name,
            module=more.pop("module"), role=role, basis="observed", order=order, numel=numel, of_numel=numel,
            zeros=zeros, nan=0, posinf=inf, neginf=0, ge_65520=sum(hist[max(0, 16 - lo) :]),
            amax=1.5 * 2.0**top, amin_nonzero=2.0**lo, sum=0.0,
            sumsq=float(sum(c * 4.0 ** (lo + i + 0.5) for i, c in enumerate(hist))),
            sumabs=float(sum(c * 2.0 ** (lo + i + 0.5) for i, c in enumerate(hist))),
            hist_lo=lo, hist=hist, **more,
        )  # fmt: skip

    def _range(self, step: int) -> None:
        scale, skipped = self.scale_at(step)
        names = module_names(self.blocks)
        for at, module in enumerate(names):
            depth = at / len(names)
            true = self.grad_center - 4 * depth + 0.5 * math.sin(step / 5 + at)
            back = len(names) - at
            for leaf in ("weight", "bias"):
                if leaf == "bias" and module in ("wte", "head"):
                    continue
                name = f"{module}.{leaf}"
                self._tensor(step, name, "grad", true + math.log2(scale), back, module=module, dtype="float32",
                             stage="pre_unscale", scaled=True, scale=scale,
                             posinf=4 if skipped and module == "head" else 0)  # fmt: skip
                self._tensor(step, name, "weight", -4.0, at, module=module, dtype="float32")
                self._tensor(step, name, "exp_avg_sq", 2 * true, at, module=module, dtype="float32")
                self._update(step, name, module, true)
            self._tensor(
                step, f"{module}:out", "activation", -1 + 6 * depth, at, module=module, dtype=self.half
            )
            self._tensor(step, f"{module}:out", "activation_grad", true + math.log2(scale) - 2, back,
                         module=module, dtype=self.half, scaled=True, scale=scale)  # fmt: skip
            self.add(
                "modules", **self.key(step, "forward"), name=module, class_name="torch.nn.Linear",
                is_root=False, order=at, calls=1, param_dtypes=["float32"], in_dtypes=[self.half],
                out_dtypes=[self.half], in_devices=["cpu"], autocast_dtype=self.half, grad_enabled=True,
                training=True, forward_s=0.0005 * (1 + at % 4), thread_main=True,
            )  # fmt: skip

    def _update(self, step: int, name: str, module: str, true: float) -> None:
        lo, hist = histogram(-11.0 + 0.3 * true / 14, 4096)
        under = sum(c for i, c in enumerate(hist) if lo + i < -11)
        under8 = sum(c for i, c in enumerate(hist) if lo + i < -8)
        self.add(
            "updates", **self.key(step, "optimizer"), name=name, module=module, dtype="float32", numel=4096,
            of_numel=16384, grad_nonzero=4090, unchanged=2, absorbed_fp16=under, absorbed_bf16=under8, moved=4088,
            below_2_11=under, below_2_8=under8, update_norm=3e-3, weight_norm=2.0, update_amax=3e-4,
            nonfinite_after=0, lr=3e-4, ratio_lo=lo, ratio_hist=hist,
        )  # fmt: skip

    def _census(self, step: int) -> None:
        seq = 0
        half = self.half
        for module in module_names(self.blocks):
            ops = (
                ("aten::_to_copy", "float32", half, "autocast", f"{module}.weight", None),
                (
                    "aten::addmm" if "ln" not in module else "aten::native_layer_norm",
                    half,
                    half,
                    None,
                    None,
                    2e6,
                ),
                ("aten::gelu", half, half, None, None, None),
            )
            for op, given, made, cast, source, flops in ops:
                for phase in ("forward", "backward"):
                    self.add(
                        "ops", **self.key(step, phase), seq=seq, op=op, module=module, in_dtypes=[given, given],
                        out_dtypes=[made], in_shapes=["64x32", "32x32"], out_shapes=["64x32"], device="cpu",
                        in_bytes=8192, out_bytes=4096, flops=flops, host_s=3e-5 * (1 + seq % 5), cast=cast,
                        cast_source=source, in_nonfinite=0, out_nonfinite=0, out_nan=0, in_amax=3.0, in_amin=-3.0,
                        out_amax=12.5, in_zeros=4, out_zeros=9, file="train.py", line=40 + seq % 7, function="step",
                    )  # fmt: skip
                    seq += 1
        for name, kind in (("aten::addmm", "op"), ("aten::copy_", "op"), ("aten::gelu", "op")):
            self.add("kernels", **self.key(3), name=name, kind=kind, calls=12, self_host_s=0.004,
                     total_host_s=0.005, in_shapes="64x32, 32x32")  # fmt: skip

    def _params(self) -> None:
        for module in module_names(self.blocks):
            for leaf in ("weight", "bias"):
                if leaf == "bias" and module in ("wte", "head"):
                    continue
                self.add(
                    "params", **self.key(0), name=f"{module}.{leaf}", module=module, dtype="float32", shape="128x128",
                    numel=16384, device="cpu", requires_grad=True, owner="AdamW#0", group=0, in_model=True,
                    got_grad=True, state_dtypes=["exp_avg=float32", "exp_avg_sq=float32"], eps=1e-8,
                    betas=[0.9, 0.999],
                )  # fmt: skip

    def _rare(self) -> None:
        for seq, call in enumerate(("scaler.init", "backward", "scaler.step", "scaler.update")):
            self.add("calls", **self.key(0), seq=seq, t=0.01 * seq, call=call, object="GradScaler#0",
                     scaled="scaled", value=self.scale0, thread_main=True, file="train.py", line=12 + seq,
                     function="main")  # fmt: skip
        self.add("events", **self.key(0), t=0.0, event="note", level="info", subject="session",
                 message="Recording <b>started</b> & well.", file="train.py", line=1)  # fmt: skip

    def write(self, path: Path, complete: bool = True) -> Path:
        """Makes the run directory `path`, the way the recorder does; not complete: its recorder is gone."""
        create_run(path, ["python", "train.py", "--lr", "3e-4"], {"every": self.every, "budget": 2.0})
        proc = claim_process(path, 0, process_info())
        writer = TraceWriter(path, strict=True)
        for table, rows in self.rows.items():
            writer.add(table, rows)
        writer.close()
        finish_process(path, 0, proc, writer.parts)
        if complete:
            finish_run(path, 0)
        else:
            gone = replace(liveness.current(), pid=2**22 + 1)
            write_run(path, replace(read_run(path), supervisor=gone))
        return path
