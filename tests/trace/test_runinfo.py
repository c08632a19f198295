from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ampscope.errors import AmpscopeError
from ampscope.trace import liveness
from ampscope.trace.integrity import assess
from ampscope.trace.records import DeviceInfo, ProcessInfo, RunInfo
from ampscope.trace.runinfo import (
    VERIFICATION_FILE,
    claim_process,
    create_run,
    default_run_dir,
    finish_process,
    finish_run,
    is_run,
    point_latest,
    read_run,
    write_process,
    write_run,
)

NOBODY = liveness.Identity(pid=2**22 + 1, start=1, boot=liveness.current().boot, host=liveness.current().host)


def supervised_by(run_dir: Path, who: liveness.Identity) -> None:
    write_run(run_dir, replace(read_run(run_dir), supervisor=who))


def test_a_run_from_start_to_end(run_dir: Path) -> None:
    run = read_run(run_dir)
    assert run.command == ("train.py", "--lr", "1e-3")
    assert run.settings == {"level": "range"}
    assert run.cwd == os.getcwd()
    assert run.state == "live"
    info = ProcessInfo(script="train.py", devices=(DeviceInfo("H200", "cuda", "9.0", 150 << 30),))
    assert claim_process(run_dir, 0, info) == 0
    process = read_run(run_dir).processes[0]
    assert (process.pid, process.state, process.end) == (os.getpid(), "live", None)
    assert process.devices == info.devices
    finish_process(run_dir, 0, 0, {"steps": 3}, {"/home/me/train.py": "ab12"})
    process = read_run(run_dir).processes[0]
    assert (process.state, process.parts) == ("ended", {"steps": 3})
    assert process.sources == {"/home/me/train.py": "ab12"}
    assert process.end is not None
    assert process.end >= process.start
    finish_run(run_dir, exit_status=3)
    run = read_run(run_dir)
    assert (run.state, run.exit_status, run.exit_signal) == ("complete", 3, None)
    assert run.command == ("train.py", "--lr", "1e-3")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", run.end or "")


def test_a_run_whose_writers_are_gone_was_cut_off(run_dir: Path) -> None:
    claim_process(run_dir, 0, ProcessInfo(identity=NOBODY))
    assert read_run(run_dir).state == "live", "the supervisor lives"
    supervised_by(run_dir, NOBODY)
    run = read_run(run_dir)
    assert (run.state, run.processes[0].state) == ("cut_off", "cut_off")
    claim_process(run_dir, 0, ProcessInfo())
    assert read_run(run_dir).state == "live", "one process lives"


def test_a_run_of_another_machine_is_live_while_its_files_are_young(run_dir: Path) -> None:
    supervised_by(run_dir, replace(NOBODY, host="other"))
    assert read_run(run_dir).state == "live"
    for path in (run_dir, *run_dir.rglob("*")):
        os.utime(path, (1e9, 1e9))
    assert read_run(run_dir).state == "cut_off"
    (run_dir / "steps" / "rank=0").mkdir(parents=True)
    assert read_run(run_dir).state == "live", "a part was just written"


def test_a_killed_process_in_a_finished_run_was_cut_off(run_dir: Path) -> None:
    claim_process(run_dir, 0, ProcessInfo())
    finish_run(run_dir, None, exit_signal=9)
    run = read_run(run_dir)
    assert (run.state, run.exit_status, run.exit_signal) == ("complete", None, 9)
    assert run.processes[0].state == "cut_off"


def test_processes_that_claim_at_the_same_time_get_different_numbers(run_dir: Path) -> None:
    got: list[int] = []
    threads = [
        threading.Thread(target=lambda: got.append(claim_process(run_dir, 1, ProcessInfo())))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(12))
    assert claim_process(run_dir, 0, ProcessInfo()) == 0
    assert [(p.rank, p.proc) for p in read_run(run_dir).processes] == [(0, 0), *((1, n) for n in range(12))]


def test_a_run_is_refused_without_force(run_dir: Path) -> None:
    message = re.escape(
        f"{run_dir} already holds a run; choose another directory, or add -f (in a script force=True)."
    )
    with pytest.raises(AmpscopeError, match=message):
        create_run(run_dir, ["x.py"], {})
    assert read_run(run_dir).command[0] == "train.py"


def test_a_live_run_is_refused_with_force_too(run_dir: Path) -> None:
    with pytest.raises(AmpscopeError, match="is still being recorded; choose another directory"):
        create_run(run_dir, ["x.py"], {}, force=True)


def test_force_replaces_the_run_and_nothing_else(run_dir: Path) -> None:
    claim_process(run_dir, 0, ProcessInfo())
    part = run_dir / "steps" / "rank=0" / "part-000000.parquet"
    part.parent.mkdir(parents=True)
    ours = [part, part.with_name("part-000001.parquet.77.tmp"), run_dir / "run.json.77.tmp"]
    ours.append(run_dir / VERIFICATION_FILE)
    theirs = [run_dir / "notes.md", part.with_name("notes.md"), run_dir / "weights" / "model.pt"]
    theirs[2].parent.mkdir()
    for file in ours + theirs:
        file.write_text("x")
    finish_run(run_dir, 0)
    create_run(run_dir, ["new.py"], {}, force=True)
    assert not any(file.exists() for file in ours)
    assert all(file.read_text() == "x" for file in theirs)
    run = read_run(run_dir)
    assert (run.command, run.processes, run.state) == (("new.py",), (), "live")
    assert not (run_dir / "processes").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_of_something_else_is_never_touched(tmp_path: Path, force: bool) -> None:
    (tmp_path / "run.json").write_text('{"name": "an npm script, say"}')
    with pytest.raises(
        AmpscopeError, match="is not empty and holds no ampscope run; choose another directory"
    ):
        create_run(tmp_path, ["x.py"], {}, force=force)
    assert os.listdir(tmp_path) == ["run.json"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    create_run(tmp_path, ["x.py"], {})
    assert is_run(tmp_path)


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        AmpscopeError, match=r"Cannot record into .*Not a directory; choose another directory"
    ):
        create_run(tmp_path / "file" / "run", ["x.py"], {})


@pytest.mark.parametrize(
    ("script", "stem"),
    [
        ("train.py", "train"),
        ("/a/b/fine tune!.py", "fine-tune"),
        ("", "run"),
        ("../..", "run"),
        ("é.py", "run"),
    ],
)
def test_default_names_say_script_time_and_pid(script: str, stem: str) -> None:
    path = default_run_dir("ampscope-runs", script)
    assert path.parent == Path("ampscope-runs")
    assert re.fullmatch(rf"{stem}-\d{{8}}-\d{{6}}-{os.getpid()}", path.name)


def test_latest_points_at_the_run_and_moves_on(tmp_path: Path) -> None:
    for name in ("a", "b"):
        create_run(tmp_path / name, ["x.py"], {})
        point_latest(tmp_path / name)
        assert (tmp_path / "latest").resolve() == tmp_path / name
    assert os.readlink(tmp_path / "latest") == "b", "relative, so that the folder can be moved"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "latest"]


def test_latest_leaves_a_directory_of_that_name_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    point_latest(tmp_path / "a")
    assert not (tmp_path / "latest").is_symlink()


def test_no_run_and_a_newer_run_are_clear_refusals(tmp_path: Path, run_dir: Path) -> None:
    with pytest.raises(AmpscopeError, match="holds no ampscope run; name the directory"):
        read_run(tmp_path / "gone")
    raw = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**raw, "schema": [2, 1]}))
    with pytest.raises(
        AmpscopeError, match=r"trace schema 2\.1 and this ampscope reads up to 1\.x; upgrade with"
    ):
        read_run(run_dir)
    (run_dir / "run.json").write_text(json.dumps({**raw, "schema": [1, 99], "more": 1}))
    assert read_run(run_dir).schema == (1, 99)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "x", "command": 5, "supervisor": []}'])
def test_a_damaged_record_still_leaves_the_run(run_dir: Path, content: str) -> None:
    (run_dir / "steps" / "rank=0").mkdir(parents=True)
    (run_dir / "run.json").write_text(content)
    (run_dir / "processes").mkdir()
    (run_dir / "processes" / "rank=0-proc=0.json").write_text(content)
    run = read_run(run_dir)
    assert run.command == ()
    finish_run(run_dir, 1)
    assert (read_run(run_dir).state, read_run(run_dir).exit_status) == ("complete", 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("aZ9/", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "pid", "x"]), inner, max_size=3)
    ),
    max_leaves=4,
)
KEYS = sorted({f.name for record in (RunInfo, ProcessInfo) for f in fields(record)})


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_no_content_of_the_records_breaks_the_reader(run_dir: Path, raw: dict[str, object]) -> None:
    raw["schema"] = [1, 0]
    for file in (run_dir / "run.json", run_dir / "processes" / "rank=0-proc=0.json"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(raw))
    run = read_run(run_dir)
    assert run.state in ("live", "cut_off")
    assert run.processes[0].state in ("live", "cut_off", "ended")
    assert assess(run_dir, [], run.processes).damaged == ()


def test_an_own_record_can_be_rewritten(run_dir: Path) -> None:
    info = ProcessInfo(rank=2, proc=1, torch="2.13.0")
    assert claim_process(run_dir, 2, info) == 0
    write_process(run_dir, replace(info, proc=0, num_threads=4))
    assert [(p.proc, p.num_threads) for p in read_run(run_dir).processes] == [(0, 4)]


def test_it_imports_the_standard_library_only() -> None:
    code = "import sys, ampscope.trace.runinfo; print(*({'numpy', 'pyarrow', 'torch', 'duckdb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
