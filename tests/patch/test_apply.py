from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from ampscope.patch.edits import Edits
from ampscope.patch.refused import Refused
from ampscope.patch.sources import SourceFile
from ampscope.patch.tree import Tree


def apply(source: str, edit: Callable[[Tree, Edits], None]) -> str:
    data = textwrap.dedent(source).lstrip("\n").encode()
    tree = Tree(SourceFile(Path("/x/t.py"), "t.py", data, "/x/t.py"))
    edits = Edits(tree)
    edit(tree, edits)
    return edits.code()


def expect(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_blank_lines_stay_on_top_and_comments_with_their_statement() -> None:
    source = """
    a()


    # about b
    b()  # here
    """
    assert apply(source, lambda t, e: e.insert_before(t.plain_statement(5), "x()")) == expect(
        """
        a()


        x()
        # about b
        b()  # here
        """
    )
    assert apply(source, lambda t, e: e.replace_statement(t.plain_statement(5), "x()")) == expect(
        """
        a()


        # about b
        x()  # here
        """
    )


def test_a_moved_statement_takes_its_comments_and_its_own_edits_along() -> None:
    def edit(tree: Tree, edits: Edits) -> None:
        edits.move_after([tree.plain_statement(3)], tree.plain_statement(5))
        edits.replace(tree.calls(3)[0], "x()")

    source = """
    import q
    # about a
    a()  # here
    for i in range(3):
        b(
            i,
        )
    """
    assert apply(source, edit) == expect(
        """
        import q
        for i in range(3):
            b(
                i,
            )
            # about a
            x()  # here
        """
    )


def test_statements_of_one_line_are_taken_apart_only_when_touched() -> None:
    source = "a(); b()  # both\nc(); d()\n"
    assert apply(source, lambda t, e: e.insert_after(t.statement(t.calls(2, "c")[0]), "x()")) == (
        "a(); b()  # both\nc()\nx()\nd()\n"
    )


def test_a_body_on_the_line_of_its_head() -> None:
    source = "if q: a(); b()  # both\nelse: c()\n"
    assert apply(source, lambda t, e: e.insert_before(t.statement(t.calls(1, "b")[0]), "x()")) == (
        "if q:\n    a()\n    x()\n    b()  # both\nelse: c()\n"
    )


def test_neighbours_are_wrapped() -> None:
    source = """
    def f():
        a()

        # about b
        b()
        c()
        d()
    """
    wrap = "with q:"
    assert apply(source, lambda t, e: e.wrap([t.plain_statement(5), t.plain_statement(6)], wrap)) == expect(
        """
        def f():
            a()

            with q:
                # about b
                b()
                c()
            d()
        """
    )


def test_an_emptied_branch_goes_or_keeps_a_pass() -> None:
    source = "if i % 2:\n    a()\nif f():\n    b()\nfor x in y:\n    c()\n"

    def edit(tree: Tree, edits: Edits) -> None:
        for line in (2, 4, 6):
            edits.remove(tree.plain_statement(line))

    assert apply(source, edit) == "if f():\n    pass\nfor x in y:\n    pass\n"


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("x = 1\n", "import torch\nx = 1\n"),
        ('"""Doc."""\n\nx = 1\n', '"""Doc."""\n\nimport torch\nx = 1\n'),
        ("from __future__ import annotations\n\nimport os\nx = 1\n",
         "from __future__ import annotations\n\nimport torch\nimport os\nx = 1\n"),
        ("# header\n\nimport os\n", "# header\n\nimport torch\nimport os\n"),
    ],
)  # fmt: skip
def test_an_import_goes_before_the_others(source: str, after: str) -> None:
    def edit(tree: Tree, edits: Edits) -> None:
        edits.need_import("torch")

    assert apply(source, edit) == after


def test_line_ends_and_indentation_of_the_file_are_kept() -> None:
    source = "def f():\r\n\ta()\r\n\tb()\r\n"
    after = apply(source, lambda t, e: e.wrap([t.plain_statement(3)], "if q:"))
    assert after == "def f():\r\n\ta()\r\n\tif q:\r\n\t\tb()\r\n"


def test_what_would_not_compile_is_refused() -> None:
    with pytest.raises(Refused, match=r"the edit of t\.py would not be valid Python"):
        apply("a()\n", lambda t, e: e.insert_after(t.plain_statement(1), "break"))
