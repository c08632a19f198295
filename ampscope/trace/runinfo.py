"""The directory of a run: made, claimed by processes, finished, and read back as live, complete or cut off.

Standard library only. `run.json` belongs to the process that supervises the run, each
`processes/rank=K-proc=N.json` to the training process that it describes; both are replaced as a whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path, PurePath

from ampscope.errors import AmpscopeError
from ampscope.trace import liveness
from ampscope.trace.files import read_json, write_atomic, write_json
from ampscope.trace.liveness import Identity
from ampscope.trace.parts import PART_FILE
from ampscope.trace.records import DeviceInfo, ProcessInfo, RunInfo, build
from ampscope.trace.schema import SCHEMA_VERSION, TABLES

RUN_FILE = "run.json"
COMPLETE_FILE = "COMPLETE"
PROCESS_DIR = "processes"
VERIFICATION_FILE = "verification.json"
"""What re-runs showed about the advice for this run; readers write it, and it goes when the run is replaced."""

LATEST = "latest"

RECENT_SECONDS = 180.0
"""A run on another machine counts as live while a file of it is younger than this: three of the longest
flush intervals of the writer."""


def utc_now() -> str:
    """The current time, ISO 8601 in UTC with milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def default_run_dir(root: str | Path, script_name: str) -> Path:
    """A fresh name below `root` by script, local time and pid: `ampscope-runs/train-20261129-110204-9080`."""
    stem = re.sub(r"[^A-Za-z0-9_.]+", "-", PurePath(script_name).stem).strip("-.")[:40] or "run"
    return Path(root) / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def create_run(
    path: str | Path, command: Sequence[str], settings: Mapping[str, object], force: bool = False
) -> None:
    """Make the run directory and its `run.json`; the calling process is the supervisor.

    Raises AmpscopeError when the directory cannot be made, or is not empty: `force` replaces an earlier run
    that is not live, file by file, and touches nothing that ampscope did not write.
    """
    run_dir = Path(path)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if any(run_dir.iterdir()):
            _make_room(run_dir, force)
        info = RunInfo(
            version=_version(),
            command=tuple(command),
            cwd=os.getcwd(),
            python=sys.executable,
            start=utc_now(),
            settings=dict(settings),
            supervisor=liveness.current(),
        )
        write_run(run_dir, info)
    except OSError as e:
        raise AmpscopeError(
            f"Cannot record into {run_dir}: {e.strerror or e}; choose another directory."
        ) from e


def finish_run(path: str | Path, exit_status: int | None, exit_signal: int | None = None) -> None:
    """Record how the command ended and mark the run complete. `exit_signal` is the number of the signal that
    killed it, if one did. Raises OSError."""
    run_dir = Path(path)
    info = replace(_read_run_file(run_dir), end=utc_now(), exit_status=exit_status, exit_signal=exit_signal)
    write_run(run_dir, info)
    write_atomic(run_dir / COMPLETE_FILE, f"{info.end}\n".encode())


def point_latest(run_dir: str | Path) -> None:
    """Point the `latest` link beside `run_dir` at it. Does nothing where links are not possible, or where
    something that is not a link has the name."""
    target = Path(run_dir)
    link = target.parent / LATEST
    if link.exists() and not link.is_symlink():
        return
    tmp = target.parent / f".{LATEST}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        tmp.unlink(missing_ok=True)
        tmp.symlink_to(target.name, target_is_directory=True)
        os.replace(tmp, link)


def is_run(path: Path) -> bool:
    """True for the directory of a run, also when its `run.json` was lost."""
    if (path / RUN_FILE).is_file() and (read_json(path / RUN_FILE) or {}).get("schema") is not None:
        return True
    return any(True for name in TABLES for _ in path.glob(f"{name}/rank=*"))


def claim_process(run_dir: str | Path, rank: int, info: ProcessInfo) -> int:
    """Write `info` under the first free process number of `rank`, and return that number.

    Safe against other processes that claim at the same time. Raises OSError.
    """
    folder = Path(run_dir) / PROCESS_DIR
    folder.mkdir(parents=True, exist_ok=True)
    proc = 0
    while True:
        try:
            os.close(
                os.open(_process_file(folder.parent, rank, proc), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            )
        except FileExistsError:
            proc += 1
            continue
        try:
            write_process(run_dir, replace(info, rank=rank, proc=proc))
        except BaseException:
            # An empty record would read as a damaged one.
            _process_file(folder.parent, rank, proc).unlink(missing_ok=True)
            raise
        return proc


def write_process(run_dir: str | Path, info: ProcessInfo) -> None:
    """Replace the record of the calling process `info.rank`, `info.proc`. Missing pid, identity and start are
    filled in. Raises OSError."""
    if not info.pid:
        info = replace(info, pid=os.getpid())
    if not info.identity.pid:
        info = replace(info, identity=liveness.current())
    if not info.start:
        info = replace(info, start=utc_now())
    write_json(_process_file(Path(run_dir), info.rank, info.proc), asdict(info))


def finish_process(
    run_dir: str | Path,
    rank: int,
    proc: int,
    parts: Mapping[str, int] | None = None,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Record that the process closed its trace, how many parts it wrote per table, and the hashes of the user's
    source files. Raises OSError."""
    info = _read_process(_process_file(Path(run_dir), rank, proc)) or ProcessInfo(rank=rank, proc=proc)
    ended = replace(info, end=utc_now(), state="ended", parts=dict(parts or {}), sources=dict(sources or {}))
    write_process(run_dir, ended)


def write_run(run_dir: str | Path, info: RunInfo) -> None:
    """Replace `run.json`; processes and state are not part of it. Raises OSError."""
    raw = asdict(info)
    del raw["processes"], raw["state"]
    write_json(Path(run_dir) / RUN_FILE, raw)


def read_run(path: str | Path) -> RunInfo:
    """The run in directory `path`. Damaged or missing records leave their fields at the default.

    Raises AmpscopeError when `path` holds no run, or one of a newer major schema.
    """
    run_dir = Path(path)
    if not is_run(run_dir):
        raise AmpscopeError(
            f"{run_dir} holds no ampscope run; name the directory that `ampscope run` printed."
        )
    info = _read_run_file(run_dir)
    if info.schema[0] > SCHEMA_VERSION[0]:
        major, minor = info.schema
        raise AmpscopeError(
            f"{run_dir} was written with trace schema {major}.{minor} and this ampscope reads up to "
            f"{SCHEMA_VERSION[0]}.x; upgrade with `pip install --upgrade ampscope`."
        )
    found = [_read_process(p) for p in (run_dir / PROCESS_DIR).glob("rank=*-proc=*.json")]
    processes = sorted((p for p in found if p is not None), key=lambda p: (p.rank, p.proc))
    complete = (run_dir / COMPLETE_FILE).exists()
    processes = [replace(p, state=_process_state(p, run_dir, complete)) for p in processes]
    if complete:
        state = "complete"
    else:
        live = any(p.state == "live" for p in processes) or _is_live(info.supervisor, run_dir)
        state = "live" if live else "cut_off"
    return replace(info, state=state, processes=tuple(processes))


def _make_room(run_dir: Path, force: bool) -> None:
    if not is_run(run_dir):
        raise AmpscopeError(f"{run_dir} is not empty and holds no ampscope run; choose another directory.")
    if not force:
        raise AmpscopeError(
            f"{run_dir} already holds a run; choose another directory, or add -f (in a script force=True)."
        )
    if read_run(run_dir).state == "live":
        raise AmpscopeError(f"{run_dir} is still being recorded; choose another directory.")
    # COMPLETE goes first and run.json last: cut off in between, what is left reads as a run that was cut off.
    ours = [
        run_dir / COMPLETE_FILE,
        run_dir / VERIFICATION_FILE,
        *run_dir.glob(f"{PROCESS_DIR}/rank=*-proc=*.json*"),
    ]
    for name in TABLES:
        ours += [p for p in run_dir.glob(f"{name}/rank=*/*") if PART_FILE.fullmatch(p.name)]
    ours += [*run_dir.glob(f"{RUN_FILE}.*.tmp"), *run_dir.glob(f"{COMPLETE_FILE}.*.tmp"), run_dir / RUN_FILE]
    for file in ours:
        file.unlink(missing_ok=True)
    folders = [
        *(p for name in TABLES for p in run_dir.glob(f"{name}/rank=*")),
        *(run_dir / n for n in TABLES),
    ]
    for folder in [*folders, run_dir / PROCESS_DIR]:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ampscope")
    except PackageNotFoundError:
        return ""


def _read_run_file(run_dir: Path) -> RunInfo:
    raw = read_json(run_dir / RUN_FILE) or {}
    info = build(RunInfo, raw)
    return replace(info, schema=_schema(raw.get("schema")), supervisor=build(Identity, raw.get("supervisor")))


def _process_file(run_dir: Path, rank: int, proc: int) -> Path:
    return run_dir / PROCESS_DIR / f"rank={rank}-proc={proc}.json"


def _read_process(path: Path) -> ProcessInfo | None:
    raw = read_json(path)
    if raw is None:
        return None
    devices = raw.get("devices")
    listed = devices if isinstance(devices, list) else []
    return replace(
        build(ProcessInfo, raw),
        identity=build(Identity, raw.get("identity")),
        devices=tuple(build(DeviceInfo, d) for d in listed),
    )


def _process_state(info: ProcessInfo, run_dir: Path, complete: bool) -> str:
    if info.end is not None:
        return "ended"
    return "live" if not complete and _is_live(info.identity, run_dir) else "cut_off"


def _is_live(who: Identity, run_dir: Path) -> bool:
    known = liveness.alive(who)
    return time.time() - _newest(run_dir) < RECENT_SECONDS if known is None else known


def _newest(run_dir: Path) -> float:
    """Modification time of the youngest directory of parts: renaming a part into place touches it."""
    folders = [
        run_dir,
        run_dir / PROCESS_DIR,
        *(p for name in TABLES for p in run_dir.glob(f"{name}/rank=*")),
    ]
    return max((p.stat().st_mtime for p in folders if p.is_dir()), default=0.0)


def _schema(raw: object) -> tuple[int, int]:
    if isinstance(raw, Sequence) and len(raw) == 2 and all(type(x) is int for x in raw):
        return raw[0], raw[1]
    return SCHEMA_VERSION
