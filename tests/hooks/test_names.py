from __future__ import annotations

import threading
import time

import torch
from torch import nn

from ampscope.hooks.names import ModelNames, Ordinals, plain_name


def weight_of(model: nn.Sequential) -> torch.Tensor:
    first = model[0]
    assert isinstance(first, nn.Linear)
    return first.weight


def test_wrapper_prefixes_are_stripped() -> None:
    assert plain_name("_orig_mod.blocks.0.attn") == "blocks.0.attn"
    assert plain_name("module._fsdp_wrapped_module.blocks.0._checkpoint_wrapped_module.fc") == "blocks.0.fc"
    assert plain_name("blocks.0.module_list.1") == "blocks.0.module_list.1"


def test_ordinals_count_per_class_and_stay() -> None:
    names = Ordinals()
    a, b, c = nn.ReLU(), nn.ReLU(), nn.Tanh()
    assert [names.name(x) for x in (a, b, c, a)] == ["ReLU#0", "ReLU#1", "Tanh#0", "ReLU#0"]


def test_the_first_root_with_parameters_has_plain_names() -> None:
    names = ModelNames()
    loss, model, other = nn.MSELoss(), nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    for root in (loss, model, other):
        assert names.add_root(root)
    assert names.module(loss) == "MSELoss#0"
    assert names.module(model) == "Sequential"
    assert names.module(model[0]) == "0"
    assert names.param(weight_of(model)) == ("0.weight", "0")
    assert names.param(weight_of(other)) == ("Sequential#1.0.weight", "Sequential#1.0")
    assert not names.add_root(model)


def test_a_submodule_that_ran_first_is_renamed_by_its_root() -> None:
    names = ModelNames()
    encoder = nn.Sequential(nn.Linear(2, 2))
    model = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(2, 1)})
    names.add_root(encoder)
    assert names.module(encoder[0]) == "0"
    names.add_root(model)
    assert names.module(encoder[0]) == "encoder.0"
    assert names.param(weight_of(encoder)) == ("encoder.0.weight", "encoder.0")


def test_a_submodule_that_runs_alone_later_keeps_its_name() -> None:
    names = ModelNames()
    encoder = nn.Sequential(nn.Linear(2, 2))
    model = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(2, 1)})
    names.add_root(model)
    assert names.add_root(encoder)
    assert names.module(encoder[0]) == "encoder.0"
    assert names.param(weight_of(encoder)) == ("encoder.0.weight", "encoder.0")
    encoder.append(nn.Linear(2, 2))
    names.relearn(encoder)
    assert names.module(encoder[1]) == "encoder.1"


def test_nothing_is_kept_alive_and_a_reused_identity_is_no_match() -> None:
    names = ModelNames()
    model = nn.Sequential(nn.Linear(2, 2))
    names.add_root(model)
    weight = weight_of(model)
    assert names.param(torch.ones(2)) is None
    names.name_unnamed(weight, "spare")
    assert names.param(weight) == ("0.weight", "0")
    key = id(weight)
    del weight, model
    assert names._params[key][0]() is None


def test_buffers_have_the_names_of_their_modules() -> None:
    names = ModelNames()
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    names.add_root(model)
    assert {name for name, _ in names.buffers()} == {
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }


def test_objects_that_several_threads_make_at_once_have_names_of_their_own() -> None:
    class Name(str):
        """Looking it up in a dict lets the other threads run."""

        def __hash__(self) -> int:
            time.sleep(0.001)
            return super().__hash__()

    class Slow(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            return Name("Thing")

    class Thing(metaclass=Slow):
        pass

    ordinals, things, names = Ordinals(), [Thing() for _ in range(40)], list[str]()

    def work(some: list[Thing]) -> None:
        names.extend(ordinals.name(thing) for thing in some)

    threads = [threading.Thread(target=work, args=(things[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(f"Thing#{i}" for i in range(40))
