from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ampscope
from ampscope.errors import AmpscopeError
from ampscope.hooks import install
from ampscope.trace.reader import open_trace
from tests.support.recording import amp_training


def test_the_run_is_complete_and_says_how_it_was_made(tmp_path: Path) -> None:
    with ampscope.Recorder(tmp_path / "run"):
        assert install.current() is not None
        amp_training(2)
    assert install.current() is None
    trace = open_trace(tmp_path / "run")
    assert trace.info.state == "complete"
    assert trace.info.exit_status == 0
    process = trace.info.processes[0]
    assert process.torch.startswith("2.")
    assert process.num_threads >= 1


def test_an_existing_run_is_refused_without_force(tmp_path: Path) -> None:
    with ampscope.Recorder(tmp_path / "run"):
        amp_training(1)
    with pytest.raises(AmpscopeError, match="-f"), ampscope.Recorder(tmp_path / "run"):
        pass
    with ampscope.Recorder(tmp_path / "run", force=True):
        amp_training(2)
    assert open_trace(tmp_path / "run").rows("steps") == 2


def test_two_recorders_at_once_are_refused(tmp_path: Path) -> None:
    with (
        ampscope.Recorder(tmp_path / "one"),
        pytest.raises(RuntimeError, match="other Recorder"),
        ampscope.Recorder(tmp_path / "two"),
    ):
        pass


def test_an_unknown_level_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pulse, range, census, watch"):
        ampscope.Recorder(tmp_path, level="everything")


def test_a_block_that_trains_nothing_writes_no_rows(tmp_path: Path) -> None:
    with ampscope.Recorder(tmp_path / "run"):
        pass
    assert open_trace(tmp_path / "run").rows("steps") == 0


def test_no_reader_library_is_loaded_by_recording(tmp_path: Path) -> None:
    import subprocess

    script = (
        "import sys, ampscope\n"
        "from tests.support.recording import amp_training\n"
        "loaded = {'pandas', 'duckdb', 'dash', 'plotly'} & set(sys.modules)\n"
        "before = set(sys.modules)\n"
        f"with ampscope.Recorder({str(tmp_path / 'run')!r}):\n"
        "    amp_training(1, init_scale=2.0)\n"
        "    early = 'pyarrow' in set(sys.modules) - before\n"
        "new = set(sys.modules) - before\n"
        "print(sorted({'pandas', 'duckdb', 'dash', 'plotly'} & new))\n"
    )
    root = Path(__file__).parents[2]
    # The helper imports the reader; what recording adds is what counts.
    script = script.replace("from tests.support.recording import amp_training", _TRAIN)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True
    )
    assert done.stdout.strip() == "[]"


_TRAIN = """
import torch
def amp_training(steps, **scaler):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""
