from __future__ import annotations

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, NotMeasurable, RunSummary, Silenced
from ampscope.diagnose.finding import Change, Evidence, Finding, Where
from ampscope.diagnose.terminal import as_text

RUN = RunSummary(
    ("/home/x/train.py", "--lr", "1"), "", "cut_off", None, 9, 30, 4, 1, "2.13.0", "cpu", True, "0.1"
)
FINDING = Finding(
    "AMP203", "loss-scale-too-low", "critical",
    Where(module="layers.3", file="/home/x/proj/train.py", line=29, steps=(0, 31)),
    "The loss scale is 1, at which 100 % of the fp16 gradient elements become zero, and so on for a long line.",
    "Raise the loss scale.", Change({"scaler.init_scale": "65536"}, "- a\n+ b"),
    (Evidence("flushed share", 3e-8, "", "observed", "SELECT 1"), Evidence("dtype", "float16")),
    "It does not fall.", ("AMP301 gradient-underflow: much is lost.",),
)  # fmt: skip
COVERAGE = Coverage(
    ("AMP203",), ("AMP101", "AMP102"), (NotMeasurable("AMP601", "no CUDA device in this run"),),
    (Silenced("AMP112", "per epoch"),),
)  # fmt: skip


def screen(width: int = 80, color: bool = False) -> str:
    made = Diagnosis(RUN, "Verdict sentence.", (FINDING,), COVERAGE, ("something odd",))
    return as_text(made, root="/home/x/proj", width=width, color=color)


def test_it_fits_eighty_columns_and_has_no_trailing_space() -> None:
    lines = screen().splitlines()
    assert max(len(line) for line in lines) <= 80
    assert [line for line in lines if line != line.rstrip()] == []


def test_it_holds_all_that_was_said() -> None:
    text = " ".join(screen().split())
    for part in (
        "Verdict sentence.", "train.py --lr 1", "30 steps, 4 skipped", "cut off", "CRITICAL AMP203 loss-scale-too-low",
        "train.py:29, module layers.3, steps 0 to 31", "Do: Raise the loss scale.", "- a + b",
        "ampscope run --set scaler.init_scale=65536", "3e-08", "float16", "Wrong if: It does not fall.",
        "AMP301 gradient-underflow: much is lost.", "Not explained: something odd", "AMP101 AMP102",
        "no CUDA device in this run (AMP601)", "Silenced: AMP112, per epoch",
    ):  # fmt: skip
        assert part in text, part
    assert "/home/x/proj" not in text


def test_plain_without_color_and_styled_with() -> None:
    assert "\x1b[" not in screen()
    assert "\x1b[" in screen(color=True)
