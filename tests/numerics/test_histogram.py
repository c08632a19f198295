"""exponent_histogram against the float64 oracle: dtypes, layouts, adversarial values, and leaving no trace."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensorMode

from ampscope.numerics.histogram import ExponentHistogram, exponent_histogram
from ampscope.numerics.scratch import CHUNK

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def adversarial() -> torch.Tensor:
    """float64: powers of two and their neighbours, subnormals of every format, signed zeros, infinities, NaN."""
    powers = 2.0 ** np.arange(-160, 140, dtype=np.float64)
    near = [np.nextafter(powers, 0), powers, np.nextafter(powers, np.inf)]
    narrow = powers[20:-20].astype(np.float32)
    near32 = [np.nextafter(narrow, np.float32(0)), np.nextafter(narrow, np.float32(np.inf))]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 65504, 65519.996, 65520, 65535, 65536, 5e-324, 1e308]
    values = np.concatenate([*near, *[v.astype(np.float64) for v in near32], special])
    return torch.from_numpy(np.concatenate([values, -values]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_adversarial_values(check: Check, dtype: torch.dtype) -> None:
    x = adversarial().to(dtype)
    check(exponent_histogram(x), x.double().numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_value_of_the_two_byte_formats(check: Check, dtype: torch.dtype) -> None:
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    as_numpy = np.float16 if dtype is torch.float16 else ml_dtypes.bfloat16
    with np.errstate(invalid="ignore"):  # the signalling NaN among them
        values = codes.view(torch.int16).numpy().view(as_numpy).astype(np.float64)
    check(exponent_histogram(codes), values)


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_every_value_of_the_one_byte_formats(check: Check, name: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.numpy().view(getattr(ml_dtypes, name)).astype(np.float64)
    found = exponent_histogram(codes.view(getattr(torch, name)))
    check(found, values)
    assert found.dtype == name


def test_packed_float4_counts_two_elements_a_byte(check: Check) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    nibbles = np.concatenate([codes.numpy() & 15, codes.numpy() >> 4])
    values = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    check(exponent_histogram(codes.view(torch.float4_e2m1fn_x2)), values)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16], ids=str)
def test_integers(check: Check, dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 2, 3, 77, info.max, info.max - 1, info.min, info.min + 1], dtype=torch.int64)
    check(exponent_histogram(x.to(dtype)), x.double().numpy())


def test_integers_beyond_float32_and_bool(check: Check) -> None:
    x = torch.tensor([2**24 + 1, -(2**53), 2**62 - 1, 0], dtype=torch.int64)
    check(exponent_histogram(x), x.double().numpy())
    check(exponent_histogram(torch.tensor([True, False, True])), np.array([1.0, 0.0, 1.0]))


def test_nan_payloads_and_signalling_nan() -> None:
    codes = torch.tensor([0x7F800001, 0x7FFFFFFF, 0x7FC00000, -1, -0x7FFFFF], dtype=torch.int32)
    found = exponent_histogram(codes.view(torch.float32))
    assert (found.nan, found.numel, found.amax, found.nonzero) == (5, 5, None, 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_empty_and_zero_dimensional(check: Check, dtype: torch.dtype) -> None:
    check(exponent_histogram(torch.empty(0, 3, dtype=dtype)), np.empty(0))
    check(exponent_histogram(torch.tensor(-1.5, dtype=dtype)), np.array(-1.5))


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        "transposed": x.t(),
        "permuted": x.view(50, 20, -1).permute(2, 0, 1),
        "every second column": x[:, ::2],
        "inner slice": x[3:-5, 7:11],
        "flipped by strides": x[:, 1:].t()[1:],
        "overlapping windows": x.view(-1)[:5000].unfold(0, 9, 2),
        "overlapping, equal strides": x.view(-1)[:4000].as_strided((500, 30), (1, 1)),
        "expanded": x[:, None, :40, None].expand(-1, 3, -1, 2),
        "channels last": x.view(10, 4, 50, -1).contiguous(memory_format=torch.channels_last),
        "diagonal": x.diagonal(),
        "large inner rows": x.view(2, -1)[:, 1:],
        "negative bit": torch.view_as_complex(x.view(-1, 2)).conj().imag,
    }


@pytest.mark.parametrize("name", list(layouts(torch.zeros(1000, 600))))
def test_strides(check: Check, name: str) -> None:
    x = torch.randn(1000, 600, generator=torch.Generator().manual_seed(0))
    view = layouts(x)[name]
    before = view.clone()
    check(exponent_histogram(view), view.double().resolve_neg().contiguous().numpy())
    assert torch.equal(view, before)


def test_rows_longer_than_a_chunk_and_narrower_last_chunk(check: Check) -> None:
    x = torch.randn(3, CHUNK + 77)
    check(exponent_histogram(x[:, 5:]), x[:, 5:].double().contiguous().numpy())
    check(exponent_histogram(x.half()), x.half().double().numpy())


@pytest.mark.parametrize("make", [torch.Tensor.clone, torch.Tensor.conj], ids=["plain", "conj"])
def test_complex_is_real_and_imaginary_parts(
    check: Check, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    z = torch.tensor(
        [1 + 2j, complex(0, math.inf), complex(-3e5, -0.0), complex(math.nan, 1)], dtype=torch.complex64
    )
    z = make(z)
    check(exponent_histogram(z), torch.view_as_real(z.resolve_conj()).double().numpy())


def test_uncoalesced_sparse_adds_duplicates_first(check: Check) -> None:
    indices = torch.tensor([[0, 0, 2, 5]])
    values = torch.tensor([[1.0, 3.0], [1.0, -3.0], [8.0, 0.0], [0.5, 2.0]])
    x = torch.sparse_coo_tensor(indices, values, (9, 2), check_invariants=False)
    check(exponent_histogram(x), np.array([[2.0, 0.0], [8.0, 0.0], [0.5, 2.0]]))
    assert not x.is_coalesced()


def test_compressed_sparse_reads_stored_values(check: Check) -> None:
    with pytest.warns(UserWarning, match="beta state"):
        x = torch.tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse_csr()
    check(exponent_histogram(x), np.array([3.0, 4.0]))


def test_more_than_2_24_elements_count_exactly() -> None:
    n = 2**24 + 3
    x = torch.tensor([[0.75], [0.0], [math.inf]]).expand(3, n)
    found = exponent_histogram(x)
    assert (found.numel, found.zeros, found.posinf, found.counts[126]) == (3 * n, n, n, n)
    assert (found.sum, found.sumsq, found.sumabs) == (0.75 * n, 0.5625 * n, 0.75 * n)
    dense = exponent_histogram(torch.full((n,), 2.0**-20, dtype=torch.bfloat16))
    assert (dense.counts[107], dense.sum) == (n, n * 2.0**-20)


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="meta or fake tensor has no values"):
        exponent_histogram(torch.empty(3, device="meta"))
    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(ValueError, match="meta or fake tensor has no values"):
        exponent_histogram(fake)
    with pytest.raises(ValueError, match="cannot be read as numbers"):
        exponent_histogram(torch.empty(3, dtype=torch.bits8))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_give_their_components(check: Check, layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.full((2, 3), 2.0), torch.zeros(4, 3)], layout=layout)
    check(exponent_histogram(nested), np.array([2.0] * 6 + [0.0] * 12))


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_complex_half(check: Check) -> None:
    z = torch.complex(torch.ones(3).half(), torch.full((3,), -2.0).half())
    check(exponent_histogram(z.conj()), np.array([1.0, 2.0] * 3))


def test_deterministic_algorithms_are_no_obstacle() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert exponent_histogram(torch.ones(CHUNK + 1)).counts[127] == CHUNK + 1
    finally:
        torch.use_deterministic_algorithms(before)


def test_independent_of_ambient_torch_state(check: Check) -> None:
    x = adversarial().float()
    x.requires_grad_(True)
    reference = exponent_histogram(x)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.inference_mode():
            assert exponent_histogram(x) == reference
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert exponent_histogram(x) == reference
    assert exponent_histogram(x * 1) == reference


def test_scratch_made_in_inference_mode_works_outside() -> None:
    results: list[int] = []

    def first_use() -> None:
        with torch.inference_mode():
            exponent_histogram(torch.ones(5))
        results.append(exponent_histogram(torch.ones(7)).numel)

    thread = threading.Thread(target=first_use)
    thread.start()
    thread.join()
    assert results == [7]


def test_flushed_denormals_do_not_reach_the_counts() -> None:
    x = torch.tensor([1e-40, -1e-45, 1.0, 0.0])
    reference = exponent_histogram(x)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        found = exponent_histogram(x)
    finally:
        torch.set_flush_denormal(False)
    assert (found.zeros, found.amin_nonzero) == (1, reference.amin_nonzero)
    assert np.array_equal(found.counts, reference.counts)


def test_leaves_no_trace_on_tensor_or_generator() -> None:
    x = torch.randn(300, requires_grad=True)
    y = x * 2
    state, version, bits = torch.get_rng_state(), y._version, y.detach().clone()
    exponent_histogram(y)
    assert torch.equal(torch.get_rng_state(), state)
    assert y._version == version
    assert torch.equal(y, bits)
    y.sum().backward()
    assert x.grad is not None
    storage = torch.empty(10)
    exponent_histogram(storage)
    storage.resize_(0)


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32), max_size=50))
def test_any_float32_values(values: list[float]) -> None:
    from_list = torch.tensor(values, dtype=torch.float32)
    found = exponent_histogram(from_list)
    assert found.nonzero + found.zeros + found.nonfinite == found.numel == len(values)
    for e in range(-126, 128):
        expected = sum(1 for v in values if math.isfinite(v) and 2.0**e <= abs(v) < 2.0 ** (e + 1))
        assert found.counts[e + 127] == expected
