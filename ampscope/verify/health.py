"""How a run went over some steps, in numbers that need no rule."""

from __future__ import annotations

from dataclasses import dataclass

from ampscope.diagnose.signals import TraceView, plain

_QUERY = """
WITH asked AS (SELECT * FROM steps WHERE outcome IN ('stepped', 'skipped')),
     late AS (SELECT * FROM asked WHERE step >= (SELECT max(step) + 1 FROM asked) / 2)
SELECT (SELECT coalesce(max(step) + 1, 0) FROM asked) AS steps,
       (SELECT count(*) FROM asked WHERE outcome = 'skipped') AS skipped,
       (SELECT avg(CAST(outcome = 'skipped' AS INTEGER)) FROM late) AS late_skipped,
       (SELECT count(*) FROM asked WHERE loss IS NOT NULL AND NOT isfinite(loss)) AS bad_losses,
       (SELECT count(*) FROM late WHERE loss IS NOT NULL AND NOT isfinite(loss)) AS late_bad_losses,
       (SELECT count(DISTINCT name) FROM nonfinite WHERE role IN ('weight', 'buffer')) AS bad_weights,
       (SELECT median(loss) FROM (SELECT loss FROM asked WHERE isfinite(loss) ORDER BY step DESC LIMIT 8)) AS last_loss,
       (SELECT median(duration_s) FROM asked WHERE step > 0 AND level IN ('pulse', 'count')) AS step_s,
       (SELECT count(*) FROM events WHERE event = 'exception' AND subject <> 'KeyboardInterrupt') AS exceptions
"""

ILL_SKIPS = 0.5
"""With half of the later steps skipped the run does not train."""


@dataclass(frozen=True)
class Health:
    """`steps` were taken, `skipped` of them skipped by the scaler; `late_…` is about the second half.

    `last_loss` is the median of the last eight finite losses, `step_s` the median seconds of a step in which
    little was read; `bad_weights` counts weights and buffers that held NaN or inf.
    """

    steps: int
    skipped: int
    late_skipped: float
    bad_losses: int
    late_bad_losses: int
    bad_weights: int
    last_loss: float | None
    step_s: float | None
    crashed: bool

    @property
    def ills(self) -> tuple[str, ...]:
        """What is wrong with the run at its end, in words; empty when it trains."""
        found = []
        if self.crashed:
            found.append("it ends with an error")
        if self.bad_weights:
            found.append("weights hold NaN or inf")
        if self.late_bad_losses:
            found.append("the loss is NaN or inf")
        if self.late_skipped >= ILL_SKIPS:
            found.append("most steps are skipped")
        return tuple(found)


def health_of(trace: TraceView, failed: bool | None = None) -> Health:
    """The health of a trace. `failed` says whether the command ended with an error, where that is known better
    than from the recorded exception."""
    row = trace.sql(_QUERY).iloc[0]
    crashed = bool(row["exceptions"]) if failed is None else failed
    return Health(
        steps=int(row["steps"]),
        skipped=int(row["skipped"]),
        late_skipped=_number(row["late_skipped"]) or 0.0,
        bad_losses=int(row["bad_losses"]),
        late_bad_losses=int(row["late_bad_losses"]),
        bad_weights=int(row["bad_weights"]),
        last_loss=_number(row["last_loss"]),
        step_s=_number(row["step_s"]),
        crashed=crashed,
    )


def _number(value: object) -> float | None:
    known = plain(value)
    return None if known is None else float(known)
