"""What `--set` can change, changed in the source: arguments of autocast, GradScaler and optimizers."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.arguments import (
    AUTOCAST,
    GRAD_SCALER,
    OLD_AUTOCAST,
    OLD_GRAD_SCALER,
    has_star,
    setting,
)
from ampscope.patch.editor import editor
from ampscope.patch.names import last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.sites import Site
from ampscope.patch.tree import Tree

SCALER_KEYS = {
    "scaler.enabled": "enabled",
    "scaler.init_scale": "init_scale",
    "scaler.growth_interval": "growth_interval",
    "scaler.backoff_factor": "backoff_factor",
}
AUTOCAST_KEYS = {"autocast.dtype": "dtype", "autocast.enabled": "enabled"}

Order = tuple[str, ...]


@editor("AMP114")
def set_arguments(case: Case) -> None:
    """Every key of the finding's `change.set` becomes an argument where the object is made."""
    for key, value in case.finding.change.set.items():
        if key in SCALER_KEYS:
            _set_everywhere(case, "scaler.init", SCALER_KEYS[key], _literal(value))
        elif key in AUTOCAST_KEYS:
            text = f"torch.{value}" if key == "autocast.dtype" else _literal(value)
            _set_everywhere(case, "autocast.enter", AUTOCAST_KEYS[key], text)
        elif key == "optimizer.eps":
            _set_everywhere(case, "optimizer.init", "eps", value)
        else:
            raise Refused(f"`{key}={value}` is no argument of a call in the source")


def _literal(value: str) -> str:
    """`false` and `4096.0` as they are written in Python."""
    if value in ("true", "false"):
        return value.capitalize()
    try:
        number = float(value)
    except ValueError:
        return value
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _set_everywhere(case: Case, kind: str, name: str, value: str) -> None:
    sites = case.project.of_kind(kind)
    if not sites:
        raise Refused(f"the run recorded no place where `{name}` could be passed")
    for place in dict.fromkeys((site.file, site.line) for site in sites):
        site = next(s for s in sites if (s.file, s.line) == place)
        tree = case.project.tree(site.file)
        call, order = constructor(tree, site)
        if has_star(call):
            raise Refused(f"{tree.place(call)} passes its arguments with * or **")
        case.edits(tree).rewrite(call, setting(name, value, order))
        if value.startswith("torch.") and "torch" not in tree.global_names:
            case.edits(tree).need_import("torch")


def constructor(tree: Tree, site: Site) -> tuple[cst.Call, Order]:
    """The call that makes the scaler, the autocast context or the optimizer of a site, and its positional
    arguments. Raises Refused when the line does not make it."""
    for call in tree.calls(site.line):
        names = tree.names_of(call.func)
        order = next((order for name in names if (order := _order(name)) is not None), None)
        if order is not None and site.call in ("scaler.init", "autocast.enter"):
            return call, order
        kind = (site.object or "#").partition("#")[0]
        if site.call == "optimizer.init" and kind in {
            last_name(call.func),
            *(n.rpartition(".")[2] for n in names),
        }:
            return call, ()
    what = {"scaler.init": "GradScaler", "autocast.enter": "autocast context"}.get(site.call, "optimizer")
    raise Refused(f"{tree.file.path.name}:{site.line} does not itself make the {what}")


def _order(name: str) -> Order | None:
    if name in ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"):
        return AUTOCAST
    if name in ("torch.cuda.amp.autocast", "torch.cpu.amp.autocast"):
        return OLD_AUTOCAST
    if name in ("torch.amp.GradScaler", "torch.GradScaler", "torch.amp.grad_scaler.GradScaler"):
        return GRAD_SCALER
    if name in ("torch.cuda.amp.GradScaler", "torch.cpu.amp.GradScaler"):
        return OLD_GRAD_SCALER
    return None
