"""Tries the advice for every fault of the corpus: by override where there is one, and by patch where one is made.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/verify_corpus.py [--json FILE] [WORD …]

WORDs restrict the scripts to those whose name contains one. A refuted override is a fault of its rule.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.rule import all_rules
from ampscope.hooks.settings import Settings
from ampscope.trace.reader import open_trace
from ampscope.verify.outcome import How
from ampscope.verify.trying import verify
from tests.corpus.runner import CASES
from tests.support.forked_recorder import ForkedRecorder
from tests.support.forkserver import ForkServer


@dataclass(frozen=True)
class Line:
    """One try: `verdict` is verified, refuted, undecidable or, for a patch that is not made, no patch."""

    script: str
    code: str
    how: How
    verdict: str
    sentence: str


def scripts(words: Sequence[str]) -> list[Path]:
    """The scripts of the corpus that have a fault, by name."""
    found = [p for p in sorted(CASES.rglob("*.py")) if "ok_" not in p.name and p.parent.name != "fixed"]
    return [p for p in found if not words or any(word in p.name for word in words)]


def try_script(script: Path, server: ForkServer) -> list[Line]:
    """Record one script, then follow each piece of advice for it."""
    recorder = ForkedRecorder(server)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, "first")
        settings = Settings(run_dir=str(first), quiet=True, flush_seconds=0.5)
        recorder([sys.executable, script.name], first, settings, script.parent, None, lambda taken: None)
        with open_trace(first) as trace:
            for number, finding in enumerate(f for f in diagnose(trace).findings if f.severity != "info"):
                ways: list[How] = ["set", "patch"] if finding.change.set else ["patch"]
                for how in ways:
                    where = Path(folder, f"{number}-{how}")
                    where.mkdir()
                    outcome = verify(trace, finding, how, where, recorder=recorder)
                    made = not outcome.sentence.startswith("undecidable: there is no patch")
                    verdict = outcome.verdict if made else "no patch"
                    lines.append(Line(script.name, finding.code, how, verdict, outcome.sentence))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", metavar="WORD", nargs="*")
    parser.add_argument("--json", type=Path, help="write every try to this file")
    args = parser.parse_args()
    all_rules()
    lines: list[Line] = []
    with ForkServer() as server:
        for script in scripts(args.words):
            os.chdir(script.parent)
            for line in try_script(script, server):
                lines.append(line)
                print(f"{line.script:44} {line.code} {line.how:5} {line.sentence}", flush=True)
    for how, title in (("set", "overrides"), ("patch", "patches")):
        counts = Counter(line.verdict for line in lines if line.how == how)
        print(
            f"{title}: {sum(counts.values())} tried, "
            + ", ".join(f"{n} {v}" for v, n in sorted(counts.items()))
        )
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
