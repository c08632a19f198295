"""Finds the run that a user means: a run directory, any path inside one, a folder of runs, or the latest.

Standard library only; reads names and `run.json`, never parts.
"""

from __future__ import annotations

from pathlib import Path

from ampscope.errors import AmpscopeError
from ampscope.trace.runinfo import LATEST, is_run

DEFAULT_ROOT = "ampscope-runs"


def find_run(path: str | Path | None = None, root: str | Path = DEFAULT_ROOT) -> Path:
    """The directory of the run that `path` names; without a path the latest below `root`.

    Raises AmpscopeError, which says what to do, when there is none.
    """
    if path is None:
        found = latest_run(Path(root))
        if found is None:
            raise AmpscopeError(
                f"No run found in {root}; record one with `ampscope run train.py`, or name a run directory."
            )
        return found
    given = Path(path)
    if not given.exists():
        raise AmpscopeError(
            f"{given} does not exist; name a run directory, or leave it out for the latest run."
        )
    full = given.resolve()
    for folder in (full, *full.parents):
        if is_run(folder):
            return folder
    found = latest_run(full) if full.is_dir() else None
    if found is None:
        # `-o` takes an empty directory only.
        output = f"-o {given} " if full.is_dir() and not any(full.iterdir()) else ""
        what = "holds no ampscope run" if full.is_dir() else "is not the directory of a run"
        raise AmpscopeError(
            f"{given} {what}; record one with `ampscope run {output}train.py`, or name the directory of one."
        )
    return found


def list_runs(root: str | Path = DEFAULT_ROOT) -> list[Path]:
    """The runs directly below `root`, newest first by the time their `run.json` was last written."""
    base = Path(root)
    if not base.is_dir():
        return []
    runs = [p for p in base.iterdir() if p.is_dir() and not p.is_symlink() and is_run(p)]
    return sorted(runs, key=lambda p: (_written(p), p.name), reverse=True)


def latest_run(root: Path) -> Path | None:
    """What the `latest` link below `root` points at, or else the newest run there."""
    link = root / LATEST
    if link.is_dir() and is_run(link):
        return link.resolve()
    runs = list_runs(root)
    return runs[0].resolve() if runs else None


def _written(run_dir: Path) -> float:
    record = run_dir / "run.json"
    return (record if record.exists() else run_dir).stat().st_mtime
