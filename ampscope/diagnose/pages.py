"""The pages of all rules as files of Markdown with a table of contents: what `scripts/rule_pages` writes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ampscope.diagnose.rule import Rule, all_rules

INDEX = "README.md"
MADE = "Made by `scripts/rule_pages` from the rules in `ampscope/diagnose/rules/`."


def page(rule: Rule) -> str:
    """The page of one rule, as `ampscope explain CODE` prints it."""
    return f"# {rule.code} {rule.name} ({rule.severity})\n\n{rule.page}\n"


def index(names: Mapping[str, Rule]) -> str:
    """A table of the rules by file name: code, name, severity, one sentence."""
    rows = [
        f"| [{rule.code}]({file}) | {rule.name} | {rule.severity} | {_cell(rule.summary)} |"
        for file, rule in names.items()
    ]
    return "\n".join(
        [
            "# Diagnoses",
            "",
            f"{MADE} `ampscope explain CODE` prints a page.",
            "",
            "| code | name | severity | what it says |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> dict[str, str]:
    """Content by file name, the index among them."""
    names = {f"{rule.code}-{rule.name}.md": rule for rule in all_rules()}
    return {INDEX: index(names), **{file: page(rule) for file, rule in names.items()}}


def main(folder: Path) -> None:
    """Makes `folder` hold these pages and no other."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
