from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.patch.project import Project, visible, written_steps
from ampscope.patch.refused import Refused
from ampscope.patch.sites import Facts, Site
from ampscope.patch.sources import SourceFile
from ampscope.patch.tree import Tree
from tests.patch.patching import FILE, read_marks


def project_of(source: str, facts: Facts | None = None) -> Project:
    marked = read_marks(source)
    file = SourceFile(Path(FILE), "train.py", marked.text.encode(), FILE)
    return Project.of_sources((file,), marked.sites, facts or Facts())


def test_scaler_steps_with_the_names_of_the_user() -> None:
    project = project_of(
        """
        scaler.step(self.opt)  #: scaler.step>SGD#0
        scaler.step(other)  #: scaler.step>SGD#1
        """
    )
    assert [(s.scaler, s.optimizer, s.name) for s in project.scaler_steps] == [
        ("scaler", "self.opt", "SGD#0"),
        ("scaler", "other", "SGD#1"),
    ]
    assert [s.optimizer for s in project.steps_of(frozenset({"SGD#1"}))] == ["other"]
    with pytest.raises(Refused, match=r"recorded no scaler\.step of that optimizer"):
        project.steps_of(frozenset({"Adam#0"}))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("accelerator.step(x)\n", None),
        ("trainer.fit()  #: scaler.step>SGD#0\n", "does not itself call scaler.step"),
        ("make().step(opt)  #: scaler.step>SGD#0\n", "has no name"),
    ],
)
def test_steps_that_cannot_be_read(source: str, said: str | None) -> None:
    project = project_of(source)
    if said is None:
        assert project.scaler_steps == []
        return
    with pytest.raises(Refused, match=said):
        _ = project.scaler_steps


def test_the_optimizers_that_a_call_concerns() -> None:
    project = project_of("x = 1\n", Facts(owners=(("a", "SGD#0"), ("b", "SGD#1"))))
    assert project.optimizers_of([Site("clip", FILE, 1, params=("a", "b"), next_step="SGD#9")]) == {
        "SGD#0",
        "SGD#1",
    }
    assert project.optimizers_of([Site("clip", FILE, 1, next_step="SGD#9")]) == {"SGD#9"}


def test_files_that_are_not_the_users_are_left_out() -> None:
    project = project_of("x = 1  #: backward\n")
    foreign = Project(
        project.info,
        (*project.sites, Site("backward", "/x/site-packages/a.py", 1)),
        project.facts,
        project._trees,
    )
    assert [t.file.shown for t in foreign.trees()] == ["train.py"]


def test_steps_that_never_ran_are_found_in_the_source() -> None:
    tree = Tree(
        SourceFile(
            Path(FILE),
            "t.py",
            b"def f():\n    s.unscale_(o)\n    s.step(o)\n    s.step(p, 1)\ns.step(q)\n",
            FILE,
        )
    )
    found = written_steps(tree, tree.calls(2)[0], "s")
    assert [(s.optimizer, s.name) for s in found] == [("o", None), ("p", None)]


SCOPES = b"""\
g = 1
def outer(p):
    v = 2
    here()
    def inner():
        inside()
def other(g):
    there()
class C:
    def a(self): one()
    def b(self): two()
top()
"""


@pytest.mark.parametrize(
    ("expression", "source", "place", "expected"),
    [
        ("v", "here", "here", True),
        ("v", "here", "inside", True),
        ("v", "here", "there", False),
        ("p.x", "here", "there", False),
        ("g", "top", "here", True),
        ("g", "top", "there", False),
        ("g", "here", "top", True),
        ("self.s", "one", "two", True),
        ("self.s", "one", "here", False),
        ("f()", "top", "top", False),
    ],
)
def test_where_a_name_means_the_same(expression: str, source: str, place: str, expected: bool) -> None:
    tree = Tree(SourceFile(Path(FILE), "t.py", SCOPES, FILE))
    nodes = [tree.calls(None, name)[0] for name in (source, place)]
    assert visible(tree, expression, *nodes) is expected
