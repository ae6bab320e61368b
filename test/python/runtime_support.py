"""A hand-written CPU step, compiled without the compiler, for the tests of the runtime."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainkernel.manifest import contiguous_strides
from trainkernel.runtime.artifact import seal

ROOT = Path(__file__).resolve().parents[2]
N = 64

# inputs: w f32[N,N], v bf16[N], x f32[N,N]; outputs: loss f32[], launches i64[], w (updates w), v (updates v)
KERNEL = r"""
#include <stdint.h>
#define N 64
void step(void **p, int64_t worker, int64_t workers, void *ctx, void (*barrier)(void *)) {
  const float *w = p[0], *x = p[2];
  const uint16_t *v = p[1];
  float *loss = p[3], *w_new = p[5];
  int64_t *launches = p[4];
  uint16_t *v_new = p[6];
  int64_t *workspace = p[7];
  for (int64_t i = worker; i < N; i += workers) {
    for (int64_t j = 0; j < N; ++j) w_new[i * N + j] = w[i * N + j] - 0.5f * x[i * N + j];
    v_new[i] = v[i] ^ 0x8000;  // negate
  }
  barrier(ctx);
  float sum = 0;  // over the rows of all workers, by each worker
  for (int64_t i = 0; i < N * N; ++i) sum += w_new[i];
  workspace[1 + worker] = (int64_t)sum;
  barrier(ctx);
  if (worker == 0) {
    for (int64_t i = 0; i < workers; ++i) if (workspace[1 + i] != (int64_t)sum) sum = -1e30f;
    *loss = sum;
    *launches = ++workspace[0];
  }
}
"""


def tensor(name: str, role: str, shape: tuple[int, ...], dtype: str, **extra: Any) -> dict[str, Any]:
    """A tensor of a manifest."""
    strides = list(contiguous_strides(shape))
    return {"name": name, "role": role, "shape": list(shape), "dtype": dtype, "strides": strides, **extra}


def manifest(**changes: Any) -> dict[str, Any]:
    """The manifest of KERNEL: ``step(state={"w": .., "v": ..}, x, 3) -> (loss, {"new": {..}, "n": ..})``."""
    leaf = {"kind": "leaf"}
    state = {"kind": "dict", "keys": ["w", "v"], "children": [leaf, leaf]}
    result = {"kind": "dict", "keys": ["n", "new"], "children": [leaf, state]}
    static = {"kind": "static", "value": 3}
    return {
        "format": "trainkernel",
        "version": 1,
        "name": "step",
        "target": {"kind": "cpu", "arch": "x86-64", "features": ["+sse2"], "workers": 0},
        "inputs": [
            tensor("state['w']", "state", (N, N), "float32"),
            tensor("state['v']", "state", (N,), "bfloat16"),
            tensor("x", "batch", (N, N), "float32"),
        ],
        "outputs": [
            tensor("out[0]", "loss", (), "float32", updates=None),
            tensor("out[1]['n']", "output", (), "int64", updates=None),
            tensor("out[1]['new']['w']", "new_state", (N, N), "float32", updates=0),
            tensor("out[1]['new']['v']", "new_state", (N,), "bfloat16", updates=1),
        ],
        "in_tree": {"kind": "tuple", "children": [state, leaf, static]},
        "out_tree": {"kind": "tuple", "children": [leaf, result]},
        "parameters": ["state", "x", "n"],
        "kernel": {"symbol": "step", "workspace_bytes": 8 * 1100, "workspace_align": 256},
        **changes,
    }


def build_pool(folder: Path) -> Path:
    """Compile lib/Runtime/CPUPool.cpp."""
    return _build_library(("CPUPool.cpp",), folder / "libtrainkernel_cpu.so")


def build_call(folder: Path) -> Path:
    """Compile lib/Runtime/StepCall.cpp and what belongs to it."""
    return _build_library(("StepCall.cpp", "StepTensors.cpp", "StepTree.cpp"), folder / "libtrainkernel_call.so")


def _build_library(sources: Sequence[str], library: Path) -> Path:
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
    subprocess.run(
        ["c++", *flags, *(str(ROOT / "lib/Runtime" / source) for source in sources), "-o", str(library)], check=True
    )
    return library


def build_step(path: Path, manifest_bytes: bytes, kernel: str = KERNEL, *, sealed: bool = True) -> Path:
    """Compile a kernel with a manifest into an artifact."""
    values = ",".join(str(byte) for byte in manifest_bytes + b"\0")
    source = path.with_suffix(".c")
    digest = "const unsigned char trainkernel_digest[32] = {1};"
    source.write_text(f"{kernel}\nconst unsigned char trainkernel_manifest[] = {{{values}}};\n{digest}\n")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-s", str(source), "-o", str(path)], check=True)
    if sealed:
        seal(path)
    return path
