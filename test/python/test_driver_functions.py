"""NVIDIA's real bindings and our direct calls, on a libcuda that computes nothing: in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_support import ROOT
from test_runtime_cuda import make_cubin

pytest.importorskip("cuda.bindings.driver")

PRELUDE = """
import ctypes, sys
import numpy as np
from trainkernel.errors import DeviceError
from trainkernel.runtime import DeviceArray, load
from trainkernel.runtime.driver import get_driver

fake = ctypes.CDLL(sys.argv[2])
fake.fake_stream.restype = fake.fake_param.restype = fake.fake_launches.restype = ctypes.c_uint64
fake.fake_count(8)
step = load(sys.argv[1])
state = {"w": DeviceArray.empty((64, 64), "float32"), "v": DeviceArray.empty((64,), "bfloat16")}
x = DeviceArray.empty((64, 64), "float32")
"""

LAUNCH = """
loss, result = step(state, x, 3)
new = result["new"]
arrays = [state["w"], state["v"], x, loss, result["n"], new["w"], new["v"]]
assert [fake.fake_param(i) for i in range(7)] == [array.pointer for array in arrays]
workspace = fake.fake_param(7)
assert fake.fake_launches() == 1 and fake.fake_stream() == 0 and workspace % 256 == 0
step(state, x, 3, stream=48)
assert fake.fake_launches() == 2 and fake.fake_stream() == 48 and fake.fake_param(7) != workspace
"""

CAPTURE = """
step(state, x, 3)
workspace = fake.fake_param(7)
fake.fake_capture(1)
assert get_driver().capture(0) == 77
step(state, x, 3)
assert fake.fake_param(7) != workspace
fake.fake_capture(0)
assert get_driver().capture(0) == 0
step(state, x, 3)
assert fake.fake_param(7) == workspace
"""

FAILURE = """
fake.fake_fail(719)
try:
    step(state, x, 3)
except DeviceError as error:
    assert str(error) == "cuLaunchKernelEx failed: CUDA_ERROR_FAKE (as asked for)", error
else:
    raise AssertionError
"""

CONTEXT = """
driver = get_driver()
current = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(driver._direct.addresses[2])
found = ctypes.c_uint64()
assert driver._direct.current_context() == 0
with driver.context(100):
    assert driver._direct.current_context() == 100
    with driver.context(100):
        assert driver._direct.current_context() == 100
    assert driver._direct.current_context() == 100, "what was current stays so"
assert driver._direct.current_context() == 0
"""

NATIVE = """
from pathlib import Path
import pytest
from fake_frameworks import CupyArray, CupyExchange, FakeCupy
cupy = sys.modules["cupy"] = FakeCupy()
exchange = CupyExchange(cupy)
CupyArray.__dlpack_c_exchange_api__ = exchange.capsule
import test_runtime_cuda, runtime_support
specs = runtime_support.manifest()
changes = {
    key: [{**spec, "dtype": "int16"} if spec["dtype"] == "bfloat16" else spec for spec in specs[key]]
    for key in ("inputs", "outputs")
}
step = load(test_runtime_cuda.make_cubin(Path(sys.argv[1]).parent, changes))
state = {"w": CupyArray((64, 64), "float32"), "v": CupyArray((64,), "int16")}
x = CupyArray((64, 64), "float32")
step(state, x, 3)
workspace = fake.fake_param(7)
from cuda.bindings import driver as cu
cu.cuCtxSetCurrent(cu.CUcontext(100))
launch = step._backend.launch
step._backend.launch = None  # Python's launch is not needed any more
for _ in range(3):
    loss, result = step.donate(state, x, 3)
arrays = [state["w"], state["v"], x, loss, result["n"], state["w"], state["v"]]
assert [fake.fake_param(i) for i in range(8)] == [array.data.ptr for array in arrays] + [workspace]
assert fake.fake_launches() == 4 and fake.fake_stream() == 0
fake.fake_fail(719)
try:
    step.donate(state, x, 3)
except DeviceError as error:
    assert str(error) == "cuLaunchKernelEx failed: CUDA_ERROR_FAKE (as asked for)", error
else:
    raise AssertionError
"""

GRAPH = """
fake.fake_graph.restype = fake.fake_destroyed.restype = ctypes.c_uint64
program = step.capture(state, x, 3, steps=3)
assert fake.fake_launches() == 3 and fake.fake_mode() == 1, "thread-local"
assert fake.fake_graph() == 0, "captured, not run"
program()
assert fake.fake_launches() == 3 and fake.fake_graph() == 22 and fake.fake_stream() == 0
program.replay(stream=48)
assert fake.fake_stream() == 48
fake.fake_capture(1)
program.replay(stream=48)
assert fake.fake_launches() == 6 and fake.fake_stream() == 48
fake.fake_capture(0)
fake.fake_fail(719)
try:
    program()
except DeviceError as error:
    assert str(error) == "cuGraphLaunch failed: CUDA_ERROR_FAKE (as asked for)", error
else:
    raise AssertionError
program.close()
assert fake.fake_destroyed() == 22
"""

PROGRAMS = {
    "graph": GRAPH,
    "launch": LAUNCH,
    "capture": CAPTURE,
    "failure": FAILURE,
    "context": CONTEXT,
    "native": NATIVE,
}


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stands in for the driver's."""
    library = tmp_path_factory.mktemp("libcuda") / "libcuda.so.1"
    source = Path(__file__).parent / "fake_libcuda.c"
    flags = ["-O1", "-shared", "-fPIC", "-D_GNU_SOURCE", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_driver_is_called_as_it_expects(name: str, libcuda: Path, call_path: Path, tmp_path: Path) -> None:
    cubin = make_cubin(tmp_path)
    environment = {
        **os.environ,
        # Found by its name when the bindings look for it: it is loaded already.
        "LD_PRELOAD": str(libcuda),
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'test' / 'python'}",
        "TRAINKERNEL_CALL_LIBRARY": str(call_path),
    }
    command = [sys.executable, "-c", PRELUDE + PROGRAMS[name], str(cubin), str(libcuda)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
