"""What an aten operator does to its arguments, read once from its schema: which it writes, whether it returns views,
draws random numbers or hands out uninitialised memory. Knows nothing of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


def _names(text: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in text.split())


_UNINITIALISED = frozenset(
    [
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::empty_permuted",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::resize_",
        "aten::empty_quantized",
        "aten::_empty_affine_quantized",
    ]
)
_OVERWRITES = frozenset(
    [
        "aten::fill_",
        "aten::zero_",
        "aten::copy_",
        "aten::normal_",
        "aten::uniform_",
        "aten::random_",
        "aten::bernoulli_",
        "aten::exponential_",
        "aten::log_normal_",
        "aten::cauchy_",
        "aten::geometric_",
        "aten::set_",
        "aten::resize_",
        "aten::eye_",
        "aten::_foreach_copy_",
        "aten::_foreach_zero_",
        "aten::_fused_dropout_",
        "aten::record_stream",
    ]
)
_LITERALS = frozenset(
    [
        "aten::full",
        "aten::full_like",
        "aten::new_full",
        "aten::fill_",
        "aten::fill",
        "aten::masked_fill",
        "aten::masked_fill_",
        "aten::scalar_tensor",
        "aten::where",
        "aten::index_fill",
        "aten::index_fill_",
        "aten::constant_pad_nd",
        "aten::lift_fresh",
        "aten::clamp",
        "aten::clamp_",
        "aten::clamp_min",
        "aten::clamp_max",
        "aten::nan_to_num",
    ]
)
_CASTS = frozenset(("aten::_to_copy", "aten::copy_", "aten::to", "aten::_foreach_copy_"))
_HIDDEN_WRITES = {
    f"aten::{name}": (3, 4)
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm", "instance_norm")
}
"""Running statistics that these update although their schemas do not say so."""

_VIEW_COPIES = frozenset(("aten::detach", "aten::alias", "aten::lift_fresh"))


@dataclass(frozen=True)
class OpInfo:
    """Facts about one overload. Argument numbers count positional arguments; names are keyword-only ones."""

    name: str
    """Namespace and name without the overload: aten::mm."""
    writes: tuple[int, ...]
    writes_keywords: tuple[str, ...]
    """out= arguments: written, never read."""
    reads_written: bool
    """The arguments in `writes` are inputs as well (add_), not only overwritten (copy_)."""
    view: bool
    random: bool
    uninitialised: bool
    literal: bool
    """Puts its Python-number arguments into the result as they are, so that an inf among them is intended."""
    cast: bool
    """May change the dtype and does nothing else."""
    order: tuple[str, ...]
    """Names of all arguments in the order of the schema."""

    @property
    def mutates(self) -> bool:
        return bool(self.writes or self.writes_keywords)


_cache: dict[Any, OpInfo] = {}


def op_info(func: Any) -> OpInfo:
    """Facts about an OpOverload."""
    info = _cache.get(func)
    if info is None:
        info = _cache[func] = _read(func)
    return info


def _read(func: Any) -> OpInfo:
    schema = func._schema
    name = schema.name
    writes: list[int] = []
    keywords: list[str] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            if argument.kwarg_only:
                keywords.append(argument.name)
            else:
                writes.append(position)
    aliased = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return OpInfo(
        name=name,
        writes=_HIDDEN_WRITES.get(name) or tuple(writes),
        writes_keywords=tuple(keywords),
        reads_written=name not in _OVERWRITES,
        view=name not in _CASTS and (aliased or name in _VIEW_COPIES),
        random=torch.Tag.nondeterministic_seeded in func.tags,
        uninitialised=name in _UNINITIALISED,
        literal=name in _LITERALS,
        cast=name in _CASTS,
        order=tuple(argument.name for argument in schema.arguments),
    )
