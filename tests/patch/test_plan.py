from __future__ import annotations

from pathlib import Path

from ampscope.diagnose.finding import Finding, Where
from ampscope.patch.plan import plan
from ampscope.patch.project import Project
from ampscope.patch.sites import Facts
from ampscope.patch.sources import SourceFile
from tests.patch.patching import FILE, make_plan, read_marks


def finding(code: str, line: int) -> Finding:
    return Finding(code, "", "critical", Where(file=FILE, line=line), "", "")


def test_findings_of_one_file_make_one_patch() -> None:
    marked = read_marks(
        """
        scaler.scale(loss).backward()  #: backward
        clip_grad_norm_(p, 1.0)  #: clip_grad_norm_
        clip_grad_value_(p, 1.0)  #: clip_grad_value_
        scaler.step(opt)  #: scaler.step>SGD#0
        scaler.update()
        sched.step()  #: scheduler.step
        """
    )
    project = Project.of_sources(
        (SourceFile(Path(FILE), "train.py", marked.text.encode(), FILE),), marked.sites, Facts()
    )
    found = [finding("AMP101", 2), finding("AMP101", 3), finding("AMP112", 6), finding("AMP117", 1)]
    made = plan(project, found)
    assert [f.code for f in made.made] == ["AMP101", "AMP101", "AMP112"]
    assert [(f.code, why) for f, why in made.refused] == [("AMP117", "this advice is no mechanical edit")]
    (patch,) = made.patches
    assert (patch.path, patch.shown, patch.before) == (Path(FILE), "train.py", marked.text.encode())
    assert patch.after.decode().splitlines()[1:5] == [
        "scaler.unscale_(opt)",
        "clip_grad_norm_(p, 1.0)",
        "clip_grad_value_(p, 1.0)",
        "scale_before = scaler.get_scale()",
    ]


def test_an_edit_that_clashes_with_an_earlier_one_is_refused_as_a_whole() -> None:
    marked = read_marks(
        """
        for i in range(4):
            scaler.unscale_(opt)  #: scaler.unscale_
            if i == 3:
                scaler.step(opt)
        """
    )
    file = SourceFile(Path(FILE), "train.py", marked.text.encode(), FILE)
    project = Project.of_sources((file,), marked.sites, Facts())
    made = plan(project, [finding("AMP102", 2), finding("AMP108", 2)])
    assert [f.code for f in made.made] == ["AMP102"]
    assert made.refused[0][1] == "train.py:2 is changed by another fix: apply that first, then record again"


def test_nothing_to_do() -> None:
    made, _ = make_plan("AMP117", "x = 1  #! other\n")
    assert made.patches == ()
