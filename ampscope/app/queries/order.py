"""The one order of modules and tensors on every page: the order of the first forward."""

from __future__ import annotations

from collections.abc import Iterable

from ampscope.app.queries.source import Source

_LAST = 1 << 30


def module_ranks(src: Source) -> dict[str, int]:
    """Rank of each module that ran forward: when it was first called."""
    rows = src.frame(
        'SELECT name, min("order") AS called FROM {modules} WHERE name IS NOT NULL GROUP BY name ORDER BY called, name'
    )
    if rows.empty:
        rows = src.frame(
            """SELECT module AS name, min("order") AS called FROM {tensors}
               WHERE role = 'activation' GROUP BY module ORDER BY called, name"""
        )
    return {name: rank for rank, name in enumerate(rows["name"])}


def forward_order(src: Source, names: Iterable[str]) -> list[str]:
    """`names` of tensors in forward order: by module, weight before bias, then by name.

    A tensor of a module that did not run itself (a parameter of a container) goes before what ran inside it.
    """
    ranks = module_ranks(src)
    inside = _first_inside(ranks)

    def place(name: str) -> tuple[float, bool, str]:
        owner = owner_of(name)
        where = float(ranks[owner]) if owner in ranks else inside.get(owner, _LAST) - 0.5
        return where, not name.endswith(".weight"), name

    return sorted(dict.fromkeys(names), key=place)


def owner_of(name: str) -> str:
    """The module that a parameter name or an activation name (`module:out`) belongs to."""
    module, colon, _ = name.rpartition(":")
    return module if colon else name.rpartition(".")[0]


def _first_inside(ranks: dict[str, int]) -> dict[str, int]:
    """Of every container, the rank of the first module that ran inside it."""
    first: dict[str, int] = {}
    for name, rank in ranks.items():
        parts = name.split(".")
        for depth in range(len(parts)):
            prefix = ".".join(parts[:depth])
            first[prefix] = min(first.get(prefix, _LAST), rank)
    return first


def by_module(src: Source, names: Iterable[str]) -> list[str]:
    """Module names in forward order; a container goes before what ran inside it."""
    marked = forward_order(src, (f"{name}:" for name in names))
    return [name[:-1] for name in marked]
