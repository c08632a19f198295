"""Comparisons on the terminal, by rich. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from ampscope.compare.divergence import Divergence
from ampscope.compare.headline import Headline
from ampscope.compare.precisions import Row, Table
from ampscope.compare.runs import Comparison
from ampscope.diagnose.finding import Finding
from ampscope.diagnose.text import count, percent, sci

MORE = 5
"""Further tensors that are listed after the first that diverges."""


def print_precisions(table: Table, console: Console) -> None:
    """A row for each precision, then what cannot be compared."""
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    grid.add_column("precision")
    for name in ("step", "steps/s", "speed", "memory", "skipped", "last loss", "loss distance"):
        grid.add_column(name, justify="right")
    grid.add_column("verdict")
    for row in table.rows:
        grid.add_row(*_cells(table, row))
    console.print(grid)
    for row in table.rows:
        if row.ended:
            console.print(f"{row.precision} ended with {escape(row.ended)}", style="yellow", highlight=False)
    for note in table.notes:
        console.print(escape(note), style="dim", highlight=False)


def _cells(table: Table, row: Row) -> Sequence[str]:
    h = row.headline
    if h is None:
        return (row.precision, *["-"] * 7, escape(row.verdict))
    speed = table.speed(row)
    return (
        row.precision,
        seconds(h.step_s),
        "-" if h.steps_per_s is None else sci(h.steps_per_s),
        "-" if speed is None else f"{speed:.2f} x",
        size(h.memory),
        str(h.skipped),
        loss(h),
        "-" if row.distance is None else percent(row.distance),
        escape(row.verdict),
    )


def print_runs(found: Comparison, console: Console) -> None:
    """Two runs: what differs in set-up, numbers, losses, tensors and findings."""
    _print_headlines(found, console)
    for setting in found.settings:
        console.print(
            f"{setting.name}: {escape(setting.one)} [dim]|[/] {escape(setting.two)}", highlight=False
        )
    console.print()
    console.print(_losses_sentence(found), highlight=False)
    console.print(escape(_tensors_sentence(found)), highlight=False)
    for one in found.joined.more[:MORE]:
        console.print(f"  then {escape(_tensor(one))}", highlight=False)
    rest = len(found.joined.more) - MORE
    if rest > 0:
        console.print(f"  and {count(rest, 'more tensor')} of that step", style="dim", highlight=False)
    console.print()
    for side, findings in (("first", found.only_one), ("second", found.only_two)):
        for finding in findings:
            console.print(f"only in the {side} run: {escape(_finding(finding))}", highlight=False)
    if not found.only_one and not found.only_two:
        console.print("both runs have the same findings", style="dim", highlight=False)


def _print_headlines(found: Comparison, console: Console) -> None:
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    grid.add_column("run", overflow="fold")
    for name in ("steps", "step", "memory", "skipped", "last loss", "autocast"):
        grid.add_column(name, justify="right")
    for name, h in zip(found.names, found.headlines, strict=True):
        numbers = (str(h.steps), seconds(h.step_s), size(h.memory), str(h.skipped), loss(h))
        grid.add_row(escape(name), *numbers, h.autocast_dtype or "off")
    console.print(grid)
    console.print()


def _losses_sentence(found: Comparison) -> str:
    if not found.curves.steps:
        return "The runs have no step in common whose loss both recorded."
    distance = found.curves.distance
    apart = "" if distance is None else f" (on average {percent(distance)} apart)"
    if found.apart is None:
        return f"The losses agree within rounding at {count(len(found.curves.steps), 'common step')}{apart}."
    a, b = found.curves.at(found.apart)
    return f"The losses part at step {found.apart}: {sci(a)} and {sci(b)}{apart}."


def _tensors_sentence(found: Comparison) -> str:
    joined = found.joined
    if not joined.tensors or not joined.steps:
        return "No tensor was sampled in both runs at the same step: record both with the same --every."
    compared = f"{count(joined.tensors, 'tensor')} at {count(joined.steps, 'step')}"
    missing = joined.only_one + joined.only_two
    lacking = f"; {count(missing, 'tensor')} in one run only" if missing else ""
    within = percent(joined.tolerance)
    if joined.first is None:
        return f"No tensor diverges beyond rounding ({within}): {compared} compared{lacking}."
    first = _tensor(joined.first)
    return f"First to diverge beyond rounding ({within}; {compared} compared{lacking}): {first}"


def _tensor(one: Divergence) -> str:
    dtypes = one.dtype_one if one.dtype_one == one.dtype_two else f"{one.dtype_one} and {one.dtype_two}"
    size = f"rms {sci(one.rms_one)} and {sci(one.rms_two)}"
    return f"step {one.step}, {one.role} {one.name} ({dtypes}): {one.why} ({size})"


def _finding(finding: Finding) -> str:
    return f"{finding.code} {finding.name} ({finding.severity}): {finding.claim}"


def seconds(value: float | None) -> str:
    """A time in the unit that fits it."""
    if value is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def size(value: int | None) -> str:
    """Bytes in MB or GB."""
    if value is None:
        return "-"
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def loss(headline: Headline) -> str:
    """The last loss, and how many were NaN or inf."""
    bad = f" ({headline.bad_losses} bad)" if headline.bad_losses else ""
    return ("-" if headline.last_loss is None else f"{headline.last_loss:.5g}") + bad
