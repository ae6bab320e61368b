"""Functions of PyTorch's library that native code calls, judged by PyTorch's methods."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from native_support import TreeCall
from trainkernel.runtime.dlpack import DirectAccess, DLTensor
from trainkernel.runtime.frameworks import torch_library
from trainkernel.runtime.frameworks.torch_library import direct_access
from trainkernel.runtime.native import NOT_FAST

# Subclasses that are their own memory; the objects of one are larger.
Sub: Any = type("Sub", (torch.Tensor,), {})
Slotted: Any = type("Slotted", (torch.Tensor,), {"__slots__": ("a", "b")})


def negated(size: int = 1) -> Any:
    """A lazily negated view."""
    return torch.zeros(size, dtype=torch.complex64).conj().imag


SAMPLES: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.ones(3, 4),
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: torch.ones(0, 4),
    "many axes": lambda: torch.ones(1, 2, 1, 2, 1, 2, 1),
    "part": lambda: torch.ones(9, 4)[2:5, 1:3],
    "transposed": lambda: torch.ones(3, 4).t(),
    "expanded": lambda: torch.ones(3, 1).expand(3, 4),
    "integers": lambda: torch.ones(3, dtype=torch.int16),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "bool": lambda: torch.ones(3, dtype=torch.bool),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "buffer": lambda: torch.nn.Buffer(torch.ones(3)),
    "subclass": lambda: torch.ones(3).as_subclass(Sub),
    "larger subclass": lambda: torch.ones(3).as_subclass(Slotted),
    "needs a gradient": lambda: torch.ones(3, requires_grad=True),
    "result": lambda: torch.ones(3, requires_grad=True) * 2,
    "detached": lambda: torch.ones(3, requires_grad=True).detach(),
    "negated": lambda: negated(3),
    "negated one": negated,
    "negated twice": lambda: torch._neg_view(torch._neg_view(torch.ones(3))),
    "inference": torch.inference_mode()(lambda: torch.ones(3)),
    "negated inference": torch.inference_mode()(negated),
}


@pytest.fixture
def direct() -> DirectAccess:
    """The functions, which this PyTorch has."""
    found = direct_access(torch)
    assert found is not None
    return found


def function(address: int, result: Any, *more: Any) -> Callable[..., Any]:
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p, *more)(address)


@pytest.mark.parametrize("name", list(SAMPLES))
def test_the_library_tells_what_the_methods_tell(direct: DirectAccess, name: str) -> None:
    tensor = SAMPLES[name]()
    place = id(tensor) + direct.place
    assert function(direct.is_lazy, ctypes.c_bool)(place) == tensor.is_neg()
    assert function(direct.is_unversioned, ctypes.c_bool)(place) == tensor.is_inference()
    found = DLTensor()
    function(direct.read, None, ctypes.c_void_p)(place, ctypes.addressof(found))
    assert (found.data or 0) + found.byte_offset == tensor.data_ptr()
    assert tuple(found.shape[: found.ndim]) == tensor.shape
    assert tuple(found.strides[: found.ndim]) == tensor.stride()
    assert found.bits == 8 * tensor.element_size() and found.lanes == 1
    if not tensor.is_inference():
        before = tensor._version
        function(direct.bump_version, None)(place)
        assert tensor._version == before + 1


def test_the_search_leaves_no_trace() -> None:
    torch_library.direct_access.cache_clear()
    gc.collect()
    before = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    assert direct_access(torch) is not None
    gc.collect()
    assert sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()) == before


@contextmanager
def float64() -> Iterator[None]:
    """Another default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta"), float64])
def test_the_functions_are_found_in_every_mode(mode: Any) -> None:
    torch_library.direct_access.cache_clear()
    with mode():
        assert direct_access(torch) is not None


@pytest.fixture
def searched_again() -> Iterator[None]:
    """The search begins anew, in the test and behind it."""
    torch_library.direct_access.cache_clear()
    yield
    torch_library.direct_access.cache_clear()


@pytest.mark.usefixtures("searched_again")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_IS_NEG", "_ZN2at6native7is_nosuchERKNS_6TensorE"),
        ("_IS_NEG", torch_library._IS_INFERENCE),
        ("_IS_INFERENCE", torch_library._IS_NEG),
        ("_BUMP_VERSION", torch_library._IS_NEG),
        ("_READ", torch_library._IS_NEG),
        ("_READ", ""),
    ],
)
def test_functions_that_do_other_things_are_not_used(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setattr(torch_library, name, value)
    assert direct_access(torch) is None


@pytest.mark.usefixtures("searched_again")
def test_objects_of_another_layout_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = torch_library._make_samples(torch)
    base = torch._C.TensorBase.__basicsize__
    wrong = [SimpleNamespace(_cdata=tensor._cdata + 8) for tensor in samples]
    assert base >= 32, "what is read lies inside"
    # Objects without a pointer to what _cdata says, and ones with two.
    assert torch_library._find_place(torch, [*wrong]) is None
    monkeypatch.setattr(torch_library, "_make_samples", lambda torch: [*wrong])
    assert direct_access(torch) is None


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("donate", [False, True])
def test_the_negative_bit_is_seen_on_an_object_that_was_without(donate: bool) -> None:
    # One element: contiguous whatever its stride. Memory, shape and dtype stay as they are; only the bit is new.
    pairs = torch.ones(1, dtype=torch.complex64)
    w = torch.view_as_real(pairs)[0, 1]
    call = TreeCall((w,))
    call.donate = donate
    for _ in range(3):
        assert call(w) is not NOT_FAST
        address, version = w.data_ptr(), w._version
        w.data = pairs.conj().imag[0]
        assert (w.data_ptr(), w.shape, w.dtype, w.is_neg()) == (address, (), torch.float32, True)
        assert call(w) is NOT_FAST and w._version == version
        w.data = torch.view_as_real(pairs)[0, 1]


@pytest.mark.usefixtures("native")
def test_an_object_that_takes_the_place_of_a_dead_one_is_looked_at() -> None:
    call = TreeCall((torch.ones(()),))
    source, reused = torch.zeros((), dtype=torch.complex64).conj(), 0
    for _ in range(200):
        tensor = torch.ones(())
        assert call(tensor) is not NOT_FAST
        seen = id(tensor)
        del tensor
        other = source.imag
        reused += id(other) == seen
        assert call(other) is NOT_FAST
        del other
    if not reused:
        pytest.skip("no object took the place of another one: this allocator keeps places free")


@pytest.mark.usefixtures("native")
def test_versions_are_counted_as_by_an_operation_in_place() -> None:
    with torch.inference_mode():
        inference = torch.ones(())
    tensors = [torch.ones(()), torch.ones((), requires_grad=True), torch.nn.Parameter(torch.ones(())), inference]
    call = TreeCall(tuple(tensors))
    saved = tensors[1].exp()
    square = (tensors[0] * tensors[1]).sum()
    assert call(*tensors) is not NOT_FAST
    assert [tensor._version for tensor in tensors[:3]] == [1, 1, 1]
    assert tensors[1].requires_grad and tensors[1].is_leaf
    saved.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.backward()
    with torch.inference_mode():
        assert call(*tensors) is not NOT_FAST
    assert [tensor._version for tensor in tensors[:3]] == [2, 2, 2]


@pytest.mark.usefixtures("native")
def test_a_tensor_that_lost_its_version_is_refused_as_pytorch_refuses_it() -> None:
    with torch.inference_mode():
        odd = torch.ones(())
    # No inference tensor any more, but without a version.
    odd.data = torch.ones(())
    assert not odd.is_inference()
    call = TreeCall((torch.ones(()),))
    increment_version: Any = torch.autograd.graph.increment_version
    refused = "Inplace update to inference tensor"
    with pytest.raises(RuntimeError, match=refused):
        increment_version([odd])
    with pytest.raises(RuntimeError, match=refused):
        call(odd)


@pytest.mark.usefixtures("native")
def test_tensors_without_memory_are_left_to_python() -> None:
    fake: Any = pytest.importorskip("torch._subclasses.fake_tensor")
    w = torch.ones(())
    call = TreeCall((w,))
    assert call(w) is not NOT_FAST
    with fake.FakeTensorMode():
        # The loss is fake.
        assert call(w) is NOT_FAST
    batched = torch.vmap(lambda one: torch.zeros(()) if call(one) is NOT_FAST else one + 1)
    assert torch.equal(batched(torch.ones(3)), torch.zeros(3))
    assert (
        call(w) is not NOT_FAST and call(w.to_sparse()) is NOT_FAST and call(torch.ones((), device="meta")) is NOT_FAST
    )
