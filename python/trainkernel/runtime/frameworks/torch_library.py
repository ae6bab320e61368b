"""Functions of PyTorch's own library, found in the running process.

PyTorch's methods and its DLPack C exchange API cost 30 to 80 ns for each tensor, most of it for references and the GIL;
what they call costs a few. The names below are declared in PyTorch's headers but belong to no stable ABI: each is tried
before it is used, and without them native code calls the methods and the exchange API.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache, partial
from typing import Any

from trainkernel.runtime.dlpack import DEVICE_TYPES, TYPE_CODES, DirectAccess, DLTensor

#: at::toDLPackNonOwning, at::native::is_neg, at::native::is_inference, torch::autograd::impl::bump_version; each of a
#: const at::Tensor &, the first also of a DLTensor * to fill.
_READ = "_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensor"
_IS_NEG = "_ZN2at6native6is_negERKNS_6TensorE"
_IS_INFERENCE = "_ZN2at6native12is_inferenceERKNS_6TensorE"
_BUMP_VERSION = "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"


@lru_cache(maxsize=1)
def direct_access(torch: Any) -> DirectAccess | None:
    """The functions, or None where they are not what is expected.

    Args:
        torch: the module.
    """
    try:
        # Already loaded; its symbols include those of the libraries that it is linked with.
        library = ctypes.CDLL(torch._C.__file__, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        functions = [getattr(library, name) for name in (_READ, _IS_NEG, _IS_INFERENCE, _BUMP_VERSION)]
        samples = _make_samples(torch)
        place = _find_place(torch, samples)
        if place is None or not _work(functions, place, samples):
            return None
    except Exception:
        # Another PyTorch, in ways that nobody can foresee.
        return None
    return DirectAccess(place, *(ctypes.cast(function, ctypes.c_void_p).value for function in functions))


def _make_samples(torch: Any) -> list[Any]:
    """A plain tensor, a lazily negated one, a parameter, one without a version."""
    # The caller's defaults may be others.
    zeros = partial(torch.zeros, 2, dtype=torch.float32, device="cpu")
    with torch.inference_mode(False):
        plain, parameter = zeros(), torch.nn.Parameter(zeros())
        negated = zeros(dtype=torch.complex64).conj().imag
    with torch.inference_mode():
        return [plain, negated, parameter, zeros()]


def _find_place(torch: Any, samples: list[Any]) -> int | None:
    """Where in a Python object the C++ tensor is, which is a pointer that ``_cdata`` tells."""
    word = ctypes.sizeof(ctypes.c_uint64)
    base: Any = torch._C.TensorBase
    # Nothing outside of the objects is read: the C structure is at the start of those of all subclasses.
    places = [
        place
        for place in range(object.__basicsize__, base.__basicsize__ - word + 1, word)
        if all(ctypes.c_uint64.from_address(id(tensor) + place).value == tensor._cdata for tensor in samples)
    ]
    return places[0] if len(places) == 1 else None


def _work(functions: list[Any], place: int, samples: list[Any]) -> bool:
    """Whether the functions do what they should, with tensors of which that is known."""
    read, is_neg, is_inference, bump_version = functions
    for function, result in (
        (read, None),
        (is_neg, ctypes.c_bool),
        (is_inference, ctypes.c_bool),
        (bump_version, None),
    ):
        function.restype, function.argtypes = result, (ctypes.c_void_p,)
    read.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    addresses = [id(tensor) + place for tensor in samples]
    if [is_neg(address) for address in addresses] != [False, True, False, False]:
        return False
    if [is_inference(address) for address in addresses] != [False, False, False, True]:
        return False
    plain, _, parameter, _ = samples
    versions = plain._version, parameter._version
    bump_version(addresses[0])
    return versions == (plain._version - 1, parameter._version) and all(map(partial(_reads, read, place), samples))


def _reads(read: Any, place: int, tensor: Any) -> bool:
    found = DLTensor()
    read(id(tensor) + place, ctypes.addressof(found))
    dtype = (found.code, found.bits, found.lanes)
    shape, strides = tuple(found.shape[: found.ndim]), tuple(found.strides[: found.ndim])
    # The tensor's own shape, which outlives the call.
    return (found.data, found.byte_offset, found.device_type, dtype, shape, strides) == (
        tensor.data_ptr(),
        0,
        DEVICE_TYPES["cpu"],
        (*TYPE_CODES["float32"], 1),
        tuple(tensor.shape),
        tensor.stride(),
    )
