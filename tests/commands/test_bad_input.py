"""What a hurried user hands over by mistake: one sentence that says what to do, the documented status, nothing lost."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ampscope.commands import COMMANDS, main
from tests.diagnose.handmade import op, scaler, step, write

READERS = (
    "diagnose",
    "report",
    "fix",
    "verify",
    "export --to csv",
    "export --to perfetto",
    "view --no-browser",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder: Path, finished: bool = True) -> Path:
    tables = {"steps": [step(i) for i in range(4)], "scaler": [scaler(i, 8.0, 8.0) for i in range(4)]}
    return write(folder, {**tables, "ops": [op(1, 0, "mm")]}, finished=finished)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("[ampscope] error: ")
    assert shown.err.endswith(".\n")
    assert shown.err.count("\n") == 1
    return shown.err


@pytest.mark.parametrize("command", READERS)
def test_no_run_where_one_is_named(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.split()
    assert main([*words, "missing"]) == 2
    assert "missing does not exist; name a run directory" in one_sentence(capsys)
    assert main(words) == 2
    assert "record one with `ampscope run train.py`" in one_sentence(capsys)
    (here / "empty").mkdir()
    assert main([*words, "empty"]) == 2
    assert "record one with `ampscope run -o empty train.py`" in one_sentence(capsys)
    assert sorted(os.listdir(here)) == ["empty"]


@pytest.mark.parametrize("command", READERS)
def test_what_is_no_run_is_not_offered_as_a_place_to_record(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "data").mkdir()
    (here / "data" / "notes.txt").write_text("keep me")
    for name, what in (
        ("data", "holds no ampscope run"),
        ("data/notes.txt", "is not the directory of a run"),
    ):
        assert main([*command.split(), name]) == 2
        said = one_sentence(capsys)
        assert f"{name} {what}; record one with `ampscope run train.py`" in said
    assert (here / "data" / "notes.txt").read_text() == "keep me"


def test_compare_names_the_run_that_is_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(here / "run")
    assert main(["compare", str(run), "gone"]) == 2
    assert "gone does not exist" in one_sentence(capsys)
    assert main(["compare", str(run)]) == 2
    assert "Name two runs" in one_sentence(capsys)


@pytest.mark.parametrize("command", [name for name, _ in COMMANDS])
def test_a_wrong_option(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, *(["--to", "csv"] if command == "export" else []), "--wrong"]) == 2
    assert f"--wrong. Try `ampscope {command} --help`." in one_sentence(capsys)
    assert os.listdir(here) == []


@pytest.mark.parametrize("steps", ["0", "-3", "many"])
def test_a_demo_of_no_steps(steps: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--steps", steps]) == 2
    assert "must be a whole number from 1" in one_sentence(capsys)
    assert os.listdir(here) == []


@pytest.mark.parametrize("harm", ["truncated", "corrupted", "not Parquet"])
def test_a_damaged_part_costs_itself_and_is_named(
    harm: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(here / "run")
    (part,) = run.glob("scaler/rank=0/*.parquet")
    whole = part.read_bytes()
    half = len(whole) // 2
    flipped = bytes([*whole[:half], whole[half] ^ 0xFF, *whole[half + 1 :]])
    part.write_bytes({"truncated": whole[:half], "corrupted": flipped, "not Parquet": b"hello"}[harm])
    before = content(run)
    named = "scaler/rank=0/part-000000"
    assert main(["diagnose", str(run)]) == 0
    assert f"1 file could not be read: {named}" in " ".join(capsys.readouterr().out.split())
    assert main(["diagnose", str(run), "--json"]) == 0
    shown = capsys.readouterr()
    whys = {n["code"]: n["why"] for n in json.loads(shown.out)["coverage"]["not_measurable"]}
    assert whys["AMP202"] == "the rows of scaler could not be read"
    assert named in shown.err
    for words, status in (
        (["export", "--to", "csv", "-o", "csv"], 0),
        (["compare", str(run)], 0),
        (["fix"], 1),
        (["verify"], 2),
    ):
        assert main([*words, str(run)]) == status
        assert named in capsys.readouterr().err
    assert sorted(os.listdir("csv")) == ["ops.csv", "steps.csv"]
    assert main(["report", str(run)]) == 0
    assert named in capsys.readouterr().out
    assert content(run) == before


@pytest.mark.parametrize("record", ["run.json", "processes/rank=0-proc=0.json"])
@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_lost_record_costs_no_row(
    record: str, text: str | None, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(here / "run")
    if text is None:
        (run / record).unlink()
    else:
        (run / record).write_text(text)
    assert main(["diagnose", str(run)]) == 0
    shown = capsys.readouterr()
    assert "4 steps" in shown.out
    if record == "run.json" or text is not None:
        assert f"1 file could not be read: {record}" in " ".join(shown.out.split())


@pytest.mark.parametrize("schema", [[0, 1], [1, 99], "x", None])
def test_other_schemas_that_can_be_read(
    schema: object, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(here / "run")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "schema": schema}))
    assert main(["diagnose", str(run)]) == 0
    assert "4 steps" in capsys.readouterr().out


@pytest.mark.parametrize("command", [*READERS, "compare run"])
def test_a_newer_major_schema_is_refused(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(here / "run")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "schema": [9, 0]}))
    before = content(run)
    assert main([*command.split(), "run"]) == 2
    assert "schema 9.0 and this ampscope reads up to 1.x; upgrade" in one_sentence(capsys)
    assert content(run) == before


@pytest.mark.parametrize(
    ("steps", "finished", "said"),
    [
        ([], True, "The run took no optimizer step"),
        ([step(0, "abandoned")], True, "The run took no optimizer step"),
        ([step(0, "cut_off")], False, "before its first optimizer step"),
    ],
)
def test_runs_without_an_optimizer_step(
    steps: list[dict[str, object]],
    finished: bool,
    said: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = write(here / "run", {"steps": steps}, finished=finished)
    if not finished:
        live = run / "run.json"
        live.write_text(json.dumps({**json.loads(live.read_text()), "supervisor": {}}))
        os.utime(run, (0, 0))
    for words, status in (
        (["diagnose"], 0), (["report"], 0), (["fix"], 1), (["verify"], 2),
        (["export", "--to", "csv", "-o", "csv"], 0), (["export", "--to", "perfetto"], 0), (["compare", str(run)], 0),
    ):  # fmt: skip
        assert main([*words, str(run)]) == status, words
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        if words[0] in ("diagnose", "report"):
            assert said in " ".join(shown.out.split()) or "not taken an optimizer step yet" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        ["report", "run", "-o", "file/report.md"],
        ["report", "run", "-o", "none/report.md"],
        ["export", "run", "--to", "csv", "-o", "file"],
        ["export", "run", "--to", "csv", "-o", "file/csv"],
        ["export", "run", "--to", "perfetto", "-o", "folder"],
        ["export", "run", "--to", "perfetto", "-o", "none/x.json"],
        ["run", "-o", "file", "true"],
        ["run", "-o", "file/run", "true"],
        ["run", "-o", "folder", "true"],
        ["run", "-o", "run", "true"],
        ["compare", "-o", "file", "--precision", "fp32", "--", "true"],
    ],
)
def test_output_that_cannot_be_written(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(here / "run")
    (here / "file").write_text("mine")
    (here / "folder").mkdir()
    (here / "folder" / "file").write_text("mine")
    before = content(here)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "choose another" in err or "name another" in err
    assert content(here) == before


def test_a_report_goes_through_a_link_and_into_a_pipe(here: Path) -> None:
    made(here / "run")
    (here / "real.md").write_text("old")
    (here / "link.md").symlink_to("real.md")
    assert main(["report", "run", "-o", "link.md"]) == 0
    assert (here / "link.md").is_symlink()
    assert (here / "real.md").read_text().startswith("# ampscope report")
    os.mkfifo(here / "pipe")
    reading = os.open(here / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["report", "run", "-o", "pipe", "--format", "md"]) == 0
        assert os.read(reading, 17) == b"# ampscope report"
    finally:
        os.close(reading)
    assert stat.S_ISFIFO((here / "pipe").stat().st_mode)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nope.py"], 2, "There is no script nope.py"),
        (["notes.txt"], 127, "For a Python script: `ampscope run python notes.txt`."),
        (["./notes.txt"], 126, "For a Python script: `ampscope run python ./notes.txt`."),
        (["no-such-command"], 127, "is not a command on PATH, and there is no such file."),
        ([], 2, "There is no command to run."),
    ],
)
def test_what_cannot_be_started(
    words: list[str], status: int, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "notes.txt").write_text("just text")
    assert main(["run", *words]) == status
    assert said in one_sentence(capsys)
    assert os.listdir(here) == ["notes.txt"]
