"""Finds what a tree of Dash components says and holds. Tests only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from plotly.io.json import to_json_plotly


def tree(component: Any) -> Any:
    """The JSON that the browser gets."""
    return json.loads(to_json_plotly(component))


def nodes(component: Any) -> Iterator[dict[str, Any]]:
    """Every component below, depth first."""
    stack = [tree(component)]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(reversed(node))
        elif isinstance(node, dict) and "props" in node:
            yield node
            stack.append(node["props"].get("children"))


def text(component: Any) -> str:
    """What is read on the page, without figures and tables."""
    words: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, str | int | float) and not isinstance(node, bool):
            words.append(str(node))
        elif isinstance(node, list):
            for item in node:
                visit(item)
        elif isinstance(node, dict):
            visit(node.get("props", {}).get("children"))

    visit(tree(component))
    return " ".join(words)


def kinds(component: Any) -> set[str]:
    """Types of the components below."""
    return {node["type"] for node in nodes(component)}
