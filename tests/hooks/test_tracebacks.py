from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(x).view(7)

    def fail(kind):
        model = nn.Sequential(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        if kind == "forward":
            try:
                1 / 0
            except ZeroDivisionError:
                with torch.autocast("cpu", torch.float16):
                    model(torch.randn(2, 3))
        scaler.scale(model[0].fc(torch.randn(2, 3)).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)

    fail(KIND)
"""


@pytest.mark.parametrize("kind", ["forward", "scaler"])
def test_the_printed_traceback_is_that_of_plain_python(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "fails.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("KIND", repr(kind)))
    plain = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    command = [sys.executable, "-m", "ampscope", "run", "-q", "-o", str(tmp_path / "run"), str(script)]
    watched = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert plain.returncode == watched.returncode == 1
    assert "RuntimeError" in plain.stderr
    assert watched.stderr == plain.stderr
