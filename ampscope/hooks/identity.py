"""Who is who among tensors: small integers that stay the same for one storage and are never given to another."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

UNKNOWN = 0
"""Identity of tensors without a storage to tell them by."""


class StorageIds:
    """Numbers from 1 by order of first sight. Views of one storage share its number.

    Holds a weak reference to each storage: that keeps its address from being given to another storage, and
    none of its data alive. `prune` drops those that are gone; a number is never used twice.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, StorageWeakRef]] = {}
        self._last = UNKNOWN

    def __len__(self) -> int:
        return len(self._known)

    def of(self, tensor: torch.Tensor) -> int:
        """Identity of the storage of `tensor`; call it under `quiet()`."""
        try:
            storage = (tensor._values() if tensor.layout is torch.sparse_coo else tensor).untyped_storage()
        except (RuntimeError, NotImplementedError):
            return UNKNOWN
        address = storage._cdata
        known = self._known.get(address)
        if known is not None:
            return known[0]
        self._last += 1
        self._known[address] = (self._last, StorageWeakRef(storage))
        return self._last

    def prune(self) -> set[int]:
        """Forget storages that were freed; returns the identities that are left."""
        self._known = {a: entry for a, entry in self._known.items() if not entry[1].expired()}
        return {identity for identity, _ in self._known.values()}
