"""Runs the GPT example on CUDA, plain and recorded by turns, and writes one JSON of figures.

    python scripts/gpu_figures.py OUT_DIR

Says whether the losses are equal bit for bit, what a step costs plain and recorded, and what was diagnosed.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "char_gpt.py"
SIZE = (
    "--layers 8 --width 512 --heads 8 --context 256 --batch 32 --dtype fp16 --device cuda --lr 3e-4".split()
)
ROUNDS = 2
STEPS = (20, 220)


def seconds(command: list[str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stdout


def per_step(prefix: list[str]) -> tuple[float, str]:
    """Seconds per step, by the difference of a long and a short run, and the long run's losses."""
    short, _ = seconds([*prefix, str(EXAMPLE), *SIZE, "--steps", str(STEPS[0])])
    long, losses = seconds([*prefix, str(EXAMPLE), *SIZE, "--steps", str(STEPS[1])])
    return (long - short) / (STEPS[1] - STEPS[0]), losses


def main(out: Path) -> None:
    import torch

    run_dir = out / "run"
    record = [sys.executable, "-m", "ampscope", "run", "-q", "-f", "-o", str(run_dir)]
    rounds = [(per_step([sys.executable]), per_step(record)) for _ in range(ROUNDS)]
    diagnose = [sys.executable, "-m", "ampscope", "diagnose", str(run_dir), "--json"]
    done = subprocess.run(diagnose, capture_output=True, text=True, check=False)
    figures = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "plain_ms_per_step": 1e3 * statistics.median(plain[0] for plain, _ in rounds),
        "recorded_ms_per_step": 1e3 * statistics.median(recorded[0] for _, recorded in rounds),
        "same_losses": all(plain[1] == recorded[1] for plain, recorded in rounds),
        "losses_of_two_plain_runs_agree": len({plain[1] for plain, _ in rounds}) == 1,
        "diagnosis": json.loads(done.stdout) if done.returncode in (0, 1) else done.stderr[-2000:],
    }
    (out / "gpu.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps({key: value for key, value in figures.items() if key != "diagnosis"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
