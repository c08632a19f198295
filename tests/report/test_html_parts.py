from __future__ import annotations

from ampscope.report.html_parts import bullets, diff, key_values, more, rows, sentence, table
from ampscope.report.markup import Markup
from ampscope.report.model import Column, Table


def test_names_in_a_sentence_are_code() -> None:
    assert sentence("call clip_grad_norm_ (a<b) first.") == (
        "call <code>clip_grad_norm_</code> (<code>a&lt;b</code>) first."
    )


def test_a_table() -> None:
    shown = Table("t", (Column("a", "name"), Column("b", "share")), (("x", 0.5), (None, None)), 5, "note")
    said = table(shown)
    assert '<caption>t<span class="note">note</span></caption>' in said
    assert '<td><code>x</code></td><td class="n">50 %</td>' in said
    assert '<td>–</td><td class="n">–</td>' in said
    assert "… and 3 more rows." in said
    assert '<th scope="col" class="n">b</th>' in said


def test_rows() -> None:
    said = rows("t", ("a", "b"), [["<", Markup("<b>1</b>")]], right=(1,))
    assert '<td>&lt;</td><td class="n"><b>1</b></td>' in said


def test_a_diff_colours_changes_but_not_its_head() -> None:
    said = diff("--- a\n+++ b\n-x < 1\n+x\n y")
    assert said == (
        '<pre><span class="ctx">--- a</span><span class="ctx">+++ b</span><span class="del">-x &lt; 1</span>'
        '<span class="add">+x</span><span class="ctx"> y</span></pre>'
    )


def test_lists() -> None:
    assert bullets(["a", "b_c"]) == "<ul><li>a</li><li><code>b_c</code></li></ul>"
    assert key_values([("k", "v")]) == '<dl class="kv"><dt>k</dt><dd><code>v</code></dd></dl>'
    assert more("s", Markup("<p>x</p>")) == "<details><summary>s</summary><p>x</p></details>"
