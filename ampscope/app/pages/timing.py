"""Timing: phases of the steps, modules, profiled ops and kernels, tensor cores, ampscope's own part."""

from __future__ import annotations

from typing import Any

from dash import html

from ampscope.app import palette, tables
from ampscope.app.blocks import graph, notice, stat
from ampscope.app.figures import bars
from ampscope.app.page import Page, Part
from ampscope.app.queries import order, timing
from ampscope.app.runs import Context
from ampscope.report.text import seconds, share

TOP = 16


def _numbers(context: Context) -> Any:
    src = context.src
    row = timing.step_times(src).iloc[0]
    if not row["n"]:
        return None
    cores = timing.tensor_core_share(src)
    plain, sampled = _seconds(row["plain"]), _seconds(row["sampled"])
    own = timing.overhead(src)
    core_note = (
        "of profiled kernel time"
        if cores is not None
        else "no kernel was profiled: no CUDA device in this run"
    )
    return html.Div(
        [
            stat(
                "Step time",
                seconds(_seconds(row["p50"])),
                f"median; 95 % are below {seconds(_seconds(row['p95']))}",
                "observed",
            ),
            stat("Steps not sampled", seconds(plain), f"median; sampled ones {seconds(sampled)}", "observed"),
            stat("Tensor cores", share(cores), core_note, "observed" if cores is not None else ""),
            stat(
                "ampscope itself",
                share(own),
                "of the wall time of all steps",
                "observed" if own is not None else "",
            ),
        ],
        className="stats",
    )


def _seconds(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _phases(context: Context) -> Any:
    rows = timing.phases(context.src)
    if rows.empty:
        return notice("No step was timed", "The run ended before its first optimizer step.")
    pieces: list[Any] = [graph(bars.phases(rows), "Time per step, stacked by phase.")]
    device = timing.device_phases(context.src).iloc[0]
    if device.notna().any():
        text = ", ".join(f"{k} {seconds(float(v))}" for k, v in device.items() if v == v)
        pieces.append(html.P(f"On the device, by events, mean per step: {text}.", className="subtitle"))
    return pieces


def _modules(context: Context) -> Any:
    rows = timing.modules(context.src)
    if rows.empty:
        return notice("No module was timed", "Modules are timed on sampled steps.")
    top = rows.head(TOP)
    figure = bars.ranked(top["name"].tolist(), top["forward_s"].tolist(), "forward, host")
    return graph(figure, "Modules by host time in forward, per sampled step.")


def _kernels(context: Context) -> Any:
    rows = timing.kernels(context.src)
    if rows.empty:
        return notice(
            "No step was profiled",
            "At the default level torch.profiler times one step after a census step.",
        )
    top = rows.head(TOP)
    kind = "own, device" if (top["kind"] == "kernel").any() else "own, host"
    figure = bars.ranked(top["name"].tolist(), top["self_s"].fillna(0.0).tolist(), kind, palette.GREEN)
    return graph(figure, "Profiled ops or kernels by their own time.")


def _kernel_table(context: Context) -> Any:
    rows = timing.kernels(context.src)
    if rows.empty:
        return notice("No step was profiled")
    columns = [
        tables.Col("name", "op or kernel", width=260),
        tables.Col("kind", "kind", width=90),
        tables.Col("calls", "calls", "count", 90),
        tables.Col("self_s", "own time", "seconds", 110),
        tables.Col("total_s", "with children", "seconds", 120),
        tables.Col("tensor_core", "tensor core", width=110),
        tables.Col("shapes", "shapes"),
    ]
    return tables.grid(rows, columns, "Profiled ops and kernels")


def _module_table(context: Context) -> Any:
    rows = timing.modules(context.src)
    if rows.empty:
        return notice("No module was timed")
    names = order.by_module(context.src, rows["name"])
    rows = rows.set_index("name").reindex(names).reset_index()
    columns = [
        tables.Col("name", "module"),
        tables.Col("class_name", "class"),
        tables.Col("forward_s", "forward", "seconds", 110),
        tables.Col("calls", "calls per step", "number", 120),
        tables.Col("autocast", "autocast", width=110),
        tables.Col("given", "in", width=120),
        tables.Col("made", "out", width=120),
    ]
    return tables.grid(rows, columns, "Modules in forward order")


def _parts(context: Context) -> list[Part]:
    return [
        Part("numbers", _numbers, bare=True, height=104),
        Part(
            "phases",
            _phases,
            "Phases of each step",
            "Host time. Long runs are averaged per column; steps that were only counted are left out.",
            height=340,
        ),
        Part(
            "modules",
            _modules,
            "Modules",
            "Host time in forward, mean per sampled step.",
            width=6,
            height=400,
        ),
        Part(
            "kernels",
            _kernels,
            "Profiled ops and kernels",
            "Own time, one profiled step.",
            width=6,
            height=400,
        ),
        Part("module-table", _module_table, "Modules in forward order", height=300),
        Part("kernel-table", _kernel_table, "Profiled ops and kernels, all", height=300),
    ]


PAGE = Page(
    slug="timing",
    title="Timing",
    icon="timing",
    lead="Where a step's time goes, and how much of it is ampscope.",
    parts=_parts,
)
