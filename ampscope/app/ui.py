"""The only module that imports dash-mantine-components: the shell and the inputs. Knows no run and no query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from ampscope.app.page import Control

NAVBAR_WIDTH = 208
HEADER_HEIGHT = 56

THEME: dict[str, Any] = {
    "primaryColor": "blue",
    "colors": {
        "dark": [
            "#e7ebf1",
            "#c3ccd8",
            "#9aa7b8",
            "#6b7888",
            "#3b4655",
            "#28303b",
            "#1c232c",
            "#161b22",
            "#12171d",
            "#0e1217",
        ]
    },
    "defaultRadius": "md",
    "fontFamily": 'Inter, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif',
    "fontFamilyMonospace": 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "Liberation Mono", monospace',
    "cursorType": "pointer",
    "focusRing": "auto",
}


def provider(children: Any) -> Any:
    """Root of the page. Follows the system's colour scheme until the user chooses one."""
    return dmc.MantineProvider(children, theme=THEME, defaultColorScheme="auto")


def shell(header: Any, navigation: Any, main: Any) -> Any:
    """Header, navigation at the left (a drawer on narrow screens) and the page."""
    return dmc.AppShell(
        [
            dmc.AppShellHeader(header),
            dmc.AppShellNavbar(navigation, p="sm", **{"aria-label": "Pages"}),
            dmc.AppShellMain(main),
        ],
        id="shell",
        header={"height": HEADER_HEIGHT},
        navbar={"width": NAVBAR_WIDTH, "breakpoint": "sm", "collapsed": {"mobile": True}},
        padding="md",
        transitionDuration=0,
    )


def burger() -> Any:
    """Opens the navigation on narrow screens."""
    return dmc.Burger(id="burger", size="sm", hiddenFrom="sm", opened=False, **{"aria-label": "Navigation"})


def nav_link(path: str, label: str, icon: str) -> Any:
    return dmc.NavLink(
        id={"type": "nav", "path": path},
        label=label,
        href=path,
        leftSection=html.Span(className=f"icon icon-{icon}"),
        rightSection=html.Span(id={"type": "nav-count", "path": path}, className="nav-count"),
        className="nav-link",
    )


def theme_toggle() -> Any:
    return dmc.ColorSchemeToggle(
        id="theme",
        lightIcon=html.Span(className="icon icon-sun"),
        darkIcon=html.Span(className="icon icon-moon"),
        variant="subtle",
        color="gray",
        size="lg",
        **{"aria-label": "Switch between light and dark"},
    )


def button(label: str, id: Any, icon: str = "", primary: bool = False, disabled: bool = False) -> Any:
    return dmc.Button(
        label,
        id=id,
        size="xs",
        disabled=disabled,
        variant="filled" if primary else "default",
        leftSection=html.Span(className=f"icon icon-{icon}") if icon else None,
    )


def badge(text: str, color: str = "gray") -> Any:
    """`color` is a colour name of Mantine."""
    return dmc.Badge(text, color=color, variant="light", radius="sm", tt="none")


def tip(child: Any, text: str) -> Any:
    """Shows `text` on hover and on keyboard focus."""
    return dmc.Tooltip(
        child,
        label=text,
        multiline=True,
        w=320,
        withArrow=True,
        events={"hover": True, "focus": True, "touch": True},
    )


def copy_button(text: str, label: str = "Copy") -> Any:
    return dmc.CopyButton(
        value=text, children=label, copiedChildren="Copied", size="compact-xs", variant="default"
    )


def details(summary: str, children: Any, opened: bool = False) -> Any:
    """A native disclosure: keyboard and screen readers know it."""
    return html.Details([html.Summary(summary), html.Div(children, className="details-body")], open=opened)


def control(spec: Control, value: str) -> Any:
    """The input of a `Control`; its id makes the clientside callbacks keep the address in step."""
    if spec.kind == "scale":
        return _scale(spec, value)
    if spec.kind == "number":
        return _number(spec, value)
    data = [{"value": v, "label": text} for v, text in spec.options]
    id = {"type": "ctl", "key": spec.key}
    if spec.kind == "segmented":
        return html.Div(
            [
                html.Span(spec.label, className="ctl-label", id=f"ctl-label-{spec.key}"),
                dmc.SegmentedControl(id=id, data=data, value=value, size="xs"),
            ],
            className="ctl",
            role="group",
            **{"aria-labelledby": f"ctl-label-{spec.key}"},
        )
    return dmc.Select(
        id=id,
        label=spec.label,
        data=data,
        value=value,
        size="xs",
        searchable=len(data) > 8,
        allowDeselect=False,
        nothingFoundMessage="Nothing like it",
        limit=400,
        maxDropdownHeight=320,
        className="ctl ctl-wide" if spec.wide else "ctl",
        checkIconPosition="right",
        comboboxProps={"withinPortal": True},
    )


def _number(spec: Control, value: str) -> Any:
    return dmc.NumberInput(
        id={"type": "ctl", "key": spec.key},
        label=spec.label,
        value=float(value),
        min=2.0**-126,
        allowNegative=False,
        hideControls=True,
        size="xs",
        debounce=300,
        className="ctl",
        w=118,
    )


def _scale(spec: Control, value: str) -> Any:
    low, high = -8, 32
    return html.Div(
        [
            _number(spec, value),
            html.Div(
                dmc.Slider(
                    id={"type": "slider", "key": spec.key},
                    min=low,
                    max=high,
                    step=1,
                    value=max(low, min(high, round(math.log2(float(value))))),
                    size="sm",
                    label=None,
                    updatemode="drag",
                    marks=[{"value": v, "label": f"2{_superscript(v)}"} for v in range(low, high + 1, 8)],
                    thumbLabel="what-if loss scale, power of two",
                    color="blue",
                ),
                className="ctl-slider",
            ),
        ],
        className="ctl-scale",
    )


def _superscript(n: int) -> str:
    return str(n).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def run_select(names: Sequence[str], value: str) -> Any:
    """Chooses the run; lives in the header."""
    return dmc.Select(
        id={"type": "ctl", "key": "run"},
        data=list(names),
        value=value,
        size="xs",
        allowDeselect=False,
        searchable=len(names) > 8,
        w=300,
        maw="34vw",
        **{"aria-label": "Run"},
    )


def process_select(labels: Sequence[tuple[str, str]], value: str) -> Any:
    """Chooses the training process of a run with several."""
    return dmc.Select(
        id={"type": "ctl", "key": "process"},
        data=[{"value": v, "label": text} for v, text in labels],
        value=value,
        size="xs",
        allowDeselect=False,
        w=130,
        **{"aria-label": "Process"},
    )
