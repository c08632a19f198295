"""What a page is: controls that live in the address, and parts that are rendered each by its own request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ampscope.app.runs import Context

Children = Any
"""A Dash component, a string, or a list of them."""


@dataclass(frozen=True)
class Control:
    """One choice. Its value is the query parameter `key`, absent when it is the default."""

    key: str
    label: str
    options: tuple[tuple[str, str], ...] = ()
    """(value, label) in order."""
    default: str = ""
    kind: str = "select"
    """select (searchable), segmented, number (above 0) or scale (a number with a slider of powers of two)."""
    wide: bool = False


def no_controls(context: Context) -> Sequence[Control]:
    return ()


@dataclass(frozen=True)
class Part:
    """A card of a page. `render` may raise AmpscopeError: its sentence is shown in the card."""

    name: str
    render: Callable[[Context], Children]
    title: str = ""
    note: str = ""
    width: int = 12
    """Columns of 12."""
    height: int = 160
    """Pixels kept free until it is there, so that nothing jumps."""
    bare: bool = False
    """Without the frame of a card."""
    controls: Callable[[Context], Sequence[Control]] = no_controls
    judged: bool = False
    """Shows what the diagnosis says: it is rendered when that is made, and nothing else waits for it."""


@dataclass(frozen=True)
class Page:
    """One entry of the navigation. `skeleton_keys` are parameters whose change rebuilds the controls."""

    slug: str
    title: str
    icon: str
    parts: Callable[[Context], Sequence[Part]]
    lead: str = ""
    controls: Callable[[Context], Sequence[Control]] = no_controls
    skeleton_keys: tuple[str, ...] = field(default=())

    @property
    def path(self) -> str:
        return f"/{self.slug}"


def chosen(control: Control, context: Context) -> str:
    """The value of a control in the address, if it is an option, else its default."""
    allowed = [value for value, _ in control.options]
    return context.view.choice(control.key, allowed, control.default)
