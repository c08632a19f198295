from __future__ import annotations

import re
from pathlib import Path

import pytest

from ampscope.diagnose.rule import Found, Rule, all_rules, find_rule, rule
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import KINDS
from ampscope.trace.schema import TABLES

SECTIONS = ("How it shows", "Why it happens", "Fix", "What would refute it", "Source")
TESTS = Path(__file__).parent / "rules"


@pytest.fixture(params=all_rules(), ids=lambda r: r.code)
def one(request: pytest.FixtureRequest) -> Rule:
    found: Rule = request.param
    return found


def test_the_page_says_all_that_a_page_has_to_say(one: Rule) -> None:
    headings = re.findall(r"^## (.+)$", one.page, re.MULTILINE)
    assert tuple(headings) == SECTIONS
    assert one.summary.endswith((".", ":"))
    fix = one.page.split("## Fix")[1].split("## What")[0]
    assert "```diff" in fix
    assert re.search(r"^[+-]", fix, re.MULTILINE)
    source = one.page.split("## Source")[1]
    assert "http" in source or "IEEE" in source or "ICLR" in source
    assert len(one.page) > 500


def test_there_is_a_test_file_of_its_name(one: Rule) -> None:
    module = one.check.__module__.rpartition(".")[2]
    assert module == f"{one.code.lower()}_{one.name.replace('-', '_')}"
    assert (TESTS / f"test_{module}.py").is_file()


def test_it_names_only_what_exists(one: Rule) -> None:
    assert set(one.needs) <= TABLES.keys()
    for named in (*one.explains, *one.later):
        assert named in KINDS or re.fullmatch(r"AMP\d{3}", named), named
    assert one.code not in one.explains
    assert one.check.__doc__


def test_codes_and_names_are_unique_and_in_order() -> None:
    rules = all_rules()
    assert [r.code for r in rules] == sorted({r.code for r in rules})
    assert len({r.name for r in rules}) == len(rules)


def test_rules_are_found_by_code_and_by_name() -> None:
    by_code = find_rule(" amp101 ")
    assert by_code is not None
    assert by_code is find_rule("clip-before-unscale")
    assert find_rule("AMP000") is None


def test_a_code_cannot_be_defined_twice() -> None:
    with pytest.raises(ValueError, match="AMP101 is defined twice"):

        @rule("AMP101", "again", "info")
        def again(rule: Rule, signals: Signals) -> Found:
            yield from ()
