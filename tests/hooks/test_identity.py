from __future__ import annotations

import gc
import weakref

import torch

from ampscope.hooks.identity import UNKNOWN, StorageIds


def test_views_share_an_identity_and_copies_do_not() -> None:
    ids = StorageIds()
    x = torch.ones(4, 4)
    assert ids.of(x) == ids.of(x.t()) == ids.of(x[1:].detach()) == ids.of(torch.nn.Parameter(x))
    assert ids.of(x.clone()) != ids.of(x)


def test_an_address_that_is_used_again_gets_a_new_identity() -> None:
    ids = StorageIds()
    seen = set()
    for _ in range(200):
        x = torch.empty(16)
        seen.add(ids.of(x))
        del x
    assert len(seen) == 200


def test_data_is_freed_while_its_identity_is_known() -> None:
    ids = StorageIds()
    x = torch.empty(16)
    storage = x.untyped_storage()
    gone = weakref.ref(x)
    identity = ids.of(x)
    reference = ids._known[storage._cdata][1]
    del x, storage
    gc.collect()
    assert gone() is None
    assert reference.expired()
    assert ids.prune() == set()
    assert len(ids) == 0
    assert ids.of(torch.empty(16)) > identity


def test_prune_keeps_what_lives() -> None:
    ids = StorageIds()
    x = torch.ones(3)
    kept = ids.of(x)
    ids.of(torch.ones(3))
    assert ids.prune() == {kept}
    assert ids.of(x) == kept


def test_sparse_goes_by_its_values() -> None:
    ids = StorageIds()
    sparse = torch.ones(3).to_sparse_coo()
    assert ids.of(sparse) == ids.of(sparse._values()) != UNKNOWN
