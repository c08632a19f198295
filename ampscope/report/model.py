"""What a report says, as frozen data: collected once from a trace and its diagnosis, then only rendered.

Holds values, not text: renderers format them. Strings are foreign and not escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from ampscope.diagnose.finding import Basis, Finding

REPORT_SCHEMA = 1

Kind = Literal["name", "text", "path", "number", "share", "seconds", "bytes", "power"]
"""How a column is read. `name` columns hold names of modules, tensors, ops and dtypes: never redacted."""

Value = float | int | str | bool | None


@dataclass(frozen=True)
class Fact:
    """One number of the summary. `detail` says of what; `basis` is empty where it makes no sense."""

    label: str
    value: Value
    kind: Kind
    detail: str = ""
    basis: Basis | Literal[""] = ""


@dataclass(frozen=True)
class Column:
    """One column of a `Table`."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Table:
    """A table to print. `total` is how many rows there were before the least telling ones were left out."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    total: int
    note: str = ""

    def without_blanks(self) -> Table:
        """The same without the columns in which nothing was measured."""
        kept = [i for i in range(len(self.columns)) if any(row[i] is not None for row in self.rows)]
        columns = tuple(self.columns[i] for i in kept)
        return replace(self, columns=columns, rows=tuple(tuple(row[i] for i in kept) for row in self.rows))


@dataclass(frozen=True)
class Bucket:
    """Steps first … last of the run as one point of a line: extremes are kept when steps are thinned out.

    `scale` is the last scale in force, `loss` the mean of the finite losses (None when none was finite),
    `bad_loss` counts losses that were NaN or inf.
    """

    first: int
    last: int
    scale: float | None
    scale_low: float | None
    scale_high: float | None
    loss: float | None
    bad_loss: int
    skipped: int


@dataclass(frozen=True)
class Timeline:
    """Loss scale, skipped steps and loss over the run. `source` names the process and scaler it shows."""

    buckets: tuple[Bucket, ...] = ()
    exact: bool = True
    source: str = ""


@dataclass(frozen=True)
class Skip:
    """A skipped step and the tensor nearest the loss that was not finite in it."""

    step: int
    scale: float | None
    scale_after: float | None
    culprit: str | None
    bad_elements: int | None
    bad_tensors: int
    opt: str | None = None


@dataclass(frozen=True)
class HeatMap:
    """Shares of elements per binade, low … high; `cells[row][column]` is a share of 0 … 1, or None.

    With `axis` "exponent-rows" the rows are exponents, highest first, and the columns steps; with
    "exponent-columns" the rows are tensors and the columns exponents. `zeros` and `nonfinite` are the shares
    of what has no exponent, per step or tensor.
    """

    title: str
    axis: Literal["exponent-rows", "exponent-columns"]
    low: int
    high: int
    labels: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    zeros: tuple[float | None, ...]
    nonfinite: tuple[float | None, ...]
    note: str = ""
    total: int = 0


@dataclass(frozen=True)
class Line:
    """One series of a chart; None where nothing was measured, NaN and inf kept."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Chart:
    """Lines over steps. `marks` are horizontal lines of meaning, as (value, label)."""

    title: str
    steps: tuple[int, ...]
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...] = ()
    log2: bool = False
    unit: str = ""
    bounds: tuple[float, float] | None = None
    """The range of the value axis, where it is known beforehand: (0, 1) for shares."""


@dataclass(frozen=True)
class Exhibit:
    """What the trace shows about one finding, beside the numbers of its evidence."""

    chart: Chart | None = None
    heat: HeatMap | None = None
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class FindingReport:
    """A finding, its exhibit, and the outcome of a verification ("" when advice was not verified)."""

    finding: Finding
    exhibit: Exhibit = Exhibit()
    verification: str = ""


@dataclass(frozen=True)
class Coverage:
    """What was checked: codes with the rule's name, and for those not measurable the reason."""

    fired: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    not_measurable: tuple[tuple[str, str], ...] = ()
    silenced: tuple[tuple[str, str], ...] = ()
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Process:
    """One recorded training process, in words that fit a line each."""

    rank: int
    proc: int
    state: str
    devices: tuple[str, ...]
    cpu: str
    platform: str
    threads: int
    native: tuple[str, ...]
    versions: dict[str, str]


@dataclass(frozen=True)
class Run:
    """Where the numbers come from."""

    command: tuple[str, ...]
    script: str
    cwd: str
    start: str
    end: str | None
    state: str
    exit: str
    ampscope: str
    trace_schema: str
    settings: dict[str, str]
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class Overhead:
    """What ampscope itself cost the run: own host time over wall time, and per collector."""

    own_s: float | None
    wall_s: float | None
    collectors: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        """Own time as a share of wall time; None when either was not measured."""
        return self.own_s / self.wall_s if self.own_s is not None and self.wall_s else None


@dataclass(frozen=True)
class RemovedText:
    """One kind of private text that redaction took out."""

    kind: str
    places: int
    distinct: int


@dataclass(frozen=True)
class Privacy:
    """Whether the report was redacted, and what was taken out."""

    redacted: bool = False
    removed: tuple[RemovedText, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything a renderer may show."""

    run: Run
    verdict: str
    findings: tuple[FindingReport, ...]
    facts: tuple[Fact, ...]
    timeline: Timeline
    skips: tuple[Skip, ...]
    skipped_total: int
    gradients_over_steps: HeatMap | None
    gradients_by_tensor: HeatMap | None
    tables: tuple[Table, ...]
    coverage: Coverage
    integrity: tuple[str, ...]
    overhead: Overhead
    symptoms: tuple[str, ...] = ()
    """Sentences about what was seen and no finding explains."""
    events: Table | None = None
    crash: str = ""
    """The traceback that ended the run."""
    privacy: Privacy = Privacy()
    generator: str = ""
    schema: int = REPORT_SCHEMA
