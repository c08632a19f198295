"""Keyword arguments of a call, set or replaced. Pure functions over nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

GRAD_SCALER = ("device", "init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
"""Positional order of torch.amp.GradScaler."""

OLD_GRAD_SCALER = GRAD_SCALER[1:]
"""Positional order of torch.cuda.amp.GradScaler."""

AUTOCAST = ("device_type", "dtype", "enabled", "cache_enabled")
"""Positional order of torch.autocast."""

OLD_AUTOCAST = ("enabled", "dtype", "cache_enabled")
"""Positional order of torch.cuda.amp.autocast and torch.cpu.amp.autocast."""


def argument(call: cst.Call, name: str, order: Sequence[str] = ()) -> cst.Arg | None:
    """The argument that a call passes as `name`, by keyword or by its place in `order`."""
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return arg
        positional = arg.keyword is None and not arg.star
        if positional and index < len(order) and order[index] == name:
            return arg
    return None


def has_star(call: cst.Call) -> bool:
    """Whether arguments are passed as `*args` or `**kwargs`, so that what they hold is not known."""
    return any(arg.star for arg in call.args)


def with_argument(call: cst.Call, name: str, value: str, order: Sequence[str] = ()) -> cst.Call:
    """The call with `name=value`, in the place of the argument that it has."""
    known = argument(call, name, order)
    expression = cst.parse_expression(value)
    if known is not None:
        args = [arg.with_changes(value=expression) if arg is known else arg for arg in call.args]
        return call.with_changes(args=args)
    return call.with_changes(args=_appended(call, keyword(name, value)))


def setting(name: str, value: str, order: Sequence[str] = ()) -> Callable[[cst.CSTNode], cst.CSTNode]:
    """A function that gives a call `name=value`, for the edits of a file."""

    def make(call: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(call, cst.Call)
        return with_argument(call, name, value, order)

    return make


def with_first(call: cst.Call, value: str) -> cst.Call:
    """The call with one more positional argument in front."""
    first = cst.Arg(cst.parse_expression(value))
    if not call.args:
        return call.with_changes(args=[first])
    return call.with_changes(args=[*_separated([first]), *call.args])


def with_keywords(call: cst.Call, order: Sequence[str]) -> cst.Call:
    """The call with its positional arguments turned into keywords."""
    args = []
    for index, arg in enumerate(call.args):
        if arg.keyword is None and not arg.star and index < len(order):
            arg = arg.with_changes(keyword=cst.Name(order[index]), equal=_EQUAL)
        args.append(arg)
    return call.with_changes(args=args)


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def keyword(name: str, value: str) -> cst.Arg:
    """`name=value` as an argument."""
    return cst.Arg(cst.parse_expression(value), keyword=cst.Name(name), equal=_EQUAL)


def _appended(call: cst.Call, new: cst.Arg) -> list[cst.Arg]:
    """The arguments with one more at the end, in the layout of the others."""
    if not call.args:
        return [new]
    *rest, last = call.args
    between: cst.Comma | cst.MaybeSentinel = rest[-1].comma if rest else cst.MaybeSentinel.DEFAULT
    if not isinstance(between, cst.Comma):
        lines = isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace)
        after = call.whitespace_before_args if lines else cst.SimpleWhitespace(" ")
        between = cst.Comma(whitespace_after=after)
    new = new.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return [*rest, last.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace("")), new]


def _separated(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    """Arguments that others can follow: the last one with a comma."""
    *rest, last = args
    return [*rest, last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))]
