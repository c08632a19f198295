"""The built wheel, installed alone into a clean environment, does what the source tree does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
for step in range(20):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.randn(16, 8)).square().mean()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
import ampscope
print(ampscope.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("ampscope-*.whl"))


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel, and after that a path to this one's torch and other packages.

    A directory that a .pth file adds has its own .pth files ignored, so the source tree stays out of it.
    """
    place = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


@pytest.fixture(scope="module")
def trained(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.py and `run`, recorded by the installed wheel."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "train.py").write_text(TRAIN)
    done = ampscope(
        home, folder, "run", "-o", "run", "--every", "1", str(home / "bin" / "python"), "train.py"
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(home)
    return folder


def ampscope(home: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The installed command, run in `folder` and in no other environment than its own."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "AMPSCOPE"))}
    command = [str(home / "bin" / "ampscope"), *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    tops = {name.split("/")[0] for name in names}
    assert tops == {"ampscope", f"ampscope-{wheel.name.split('-')[1]}.dist-info"}
    assert "ampscope/py.typed" in names
    assert "ampscope/launch/bootstrap/sitecustomize.py" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_help_comes_from_the_wheel(home: Path, tmp_path: Path) -> None:
    done = ampscope(home, tmp_path, "--help")

    assert done.returncode == 0, done.stderr
    assert "ampscope run train.py" in done.stdout
    where = [str(home / "bin" / "python"), "-c", "import ampscope; print(ampscope.__file__)"]
    shown = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(shown.stdout.strip()).is_relative_to(home)


def test_a_recorded_run_is_diagnosed(home: Path, trained: Path) -> None:
    done = ampscope(home, trained, "diagnose", "run", "--json")

    assert done.returncode == 0, done.stderr
    diagnosis = json.loads(done.stdout)
    assert diagnosis["findings"][0]["code"] == "AMP101"


@pytest.mark.parametrize("name", ["ticket.md", "ticket.html"])
def test_a_recorded_run_is_reported(name: str, home: Path, trained: Path) -> None:
    done = ampscope(home, trained, "report", "run", "-o", name)

    assert done.returncode == 0, done.stderr
    assert "AMP101" in (trained / name).read_text()


def test_the_demo_brings_its_own_example(home: Path, tmp_path: Path) -> None:
    done = ampscope(home, tmp_path, "demo", "--no-view", "--steps", "4", "-o", "run")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("step 0 loss ")
    assert (tmp_path / "run" / "COMPLETE").exists()


def test_a_diagnosis_is_explained(home: Path, tmp_path: Path) -> None:
    done = ampscope(home, tmp_path, "explain", "AMP101")

    assert done.returncode == 0, done.stderr
    assert "unscale_" in done.stdout
