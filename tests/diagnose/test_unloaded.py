"""A rule file that cannot be imported costs that rule, and the coverage names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ampscope.diagnose import rule as registry
from ampscope.diagnose import rules
from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.rule import all_rules, find_rule
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import step, write


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules, and one file more that needs what is not there."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "amp998_needs_a_moon.py").write_text("import no_such_module_at_all\n")
    (folder / "amp999_half_a_file.py").write_text("def check(:\n")
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(folder)])
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))


@pytest.mark.usefixtures("broken")
def test_the_other_rules_run_and_the_coverage_names_it(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {"steps": [step(i) for i in range(4)]})) as trace:
        found = diagnose(trace)
    whys = {n.code: n.why for n in found.coverage.not_measurable}
    assert "ModuleNotFoundError: No module named 'no_such_module_at_all'" in whys["AMP998"]
    assert "SyntaxError" in whys["AMP999"]
    assert len(found.coverage.clean) + len(whys) == len(all_rules())
    assert len(found.coverage.clean) > 10


@pytest.mark.usefixtures("broken")
def test_its_page_says_so() -> None:
    found = find_rule("needs-a-moon")
    assert found is not None
    assert found.code == "AMP998"
    assert "could not be loaded" in found.page


def test_every_rule_of_the_package_is_loaded() -> None:
    assert [r.code for r in all_rules() if r.check.__module__ == "ampscope.diagnose.unloaded"] == []


def test_a_helper_that_breaks_breaks_only_the_rules_that_need_it(tmp_path: Path) -> None:
    # In a process of its own: here the rules are imported already.
    run = write(tmp_path, {"steps": [step(i) for i in range(4)]})
    code = (
        "import sys; sys.modules['ampscope.diagnose.starving'] = None\n"
        "from ampscope.commands import main\n"
        f"sys.exit(main(['diagnose', {str(run)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the rule itself failed" in done.stdout
    assert "Checked and clean" in done.stdout
