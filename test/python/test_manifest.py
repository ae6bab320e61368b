"""The manifest: what is written is read back, and nothing malformed is read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime_support import manifest
from trainkernel.errors import ArtifactError
from trainkernel.manifest import VERSION, CudaTarget, Manifest, contiguous_strides, is_contiguous


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    read = Manifest.from_json(manifest(numerics={"mode": "eager"}))
    assert Manifest.from_bytes(read.to_bytes() + b"\0\0\0") == read
    assert read.to_json()["outputs"][2]["updates"] == 0
    assert read.inputs[0].nbytes == 64 * 64 * 4


def test_a_gpu_manifest_has_its_launch_geometry() -> None:
    kernel = {
        "symbol": "step",
        "grid": [16, 1, 1],
        "cluster": [8, 1, 1],
        "threads": 256,
        "shared_bytes": 1024,
        "cooperative": True,
        "overlaps_launches": True,
        "workspace_bytes": 4096,
        "workspace_align": 256,
        "plan": {"overrides": "grid=16"},
        "schedule": [{"phase": 0}],
    }
    read = Manifest.from_json(manifest(target={"kind": "cuda", "arch": "sm_90a"}, kernel=kernel))
    assert read.kernel.to_json() == kernel
    assert read.target == CudaTarget("sm_90a")


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_90a", (10, 0), False),
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_100f", (10, 3), True),
        ("sm_120", (12, 0), True),
    ],
)
def test_an_architecture_runs_on_its_devices_alone(arch: str, capability: tuple[int, int], runs: bool) -> None:
    assert CudaTarget(arch).runs_on(*capability) is runs


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(ArtifactError, match=r"newer trainkernel(.|\n)*upgrade"):
        Manifest.from_json({"format": "trainkernel", "version": VERSION + 1, "anything": "else"})


def set_at(path: str, value: Any) -> dict[str, Any]:
    """The manifest with one value replaced; path is "inputs.0.shape"."""
    changed: Any = copy.deepcopy(manifest())
    *parents, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place = changed
    for step in parents:
        place = place[step]
    place[last] = value
    return changed  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "elf", "format is 'elf'"),
        ("version", True, "version is True"),
        ("version", 0, "version is 0"),
        ("name", 3, "name is 3"),
        ("name", "a\0b", "name is"),
        ("target", "cpu", "target is 'cpu'"),
        ("target", {"kind": "tpu"}, "one of cuda, cpu"),
        ("target", {"kind": "cuda", "arch": "sm_9000"}, "sm_9000"),
        ("target.workers", -1, "workers is -1"),
        ("target.features", "avx", "features is"),
        ("inputs", {}, "inputs is"),
        ("inputs", [], "in_tree has 3 leaves"),
        ("inputs.0", None, r"inputs\[0\] is None"),
        ("inputs.0.shape", [-1, 64], r"shape\[0\] is -1"),
        ("inputs.0.shape", [64.0, 64], r"shape\[0\] is 64.0"),
        ("inputs.0.shape", [2**40, 2**40], "at most"),
        ("inputs.0.shape", [0, 2**47, 2**47], "at most"),
        ("inputs.0.shape", [2**70], "is 1180591620717411303424"),
        ("inputs.0.shape", [1] * 100, "at most 64"),
        ("inputs.0.strides", [1, 1], "strides is .*without overlaps"),
        ("inputs.0.strides", [65, 64], "strides is .*without overlaps"),
        ("inputs.0.strides", [-1, 64], "strides.*is -1"),
        ("inputs.0.strides", [2**46, 1], "at most"),
        ("outputs.1.strides", [1, 64], "strides is"),
        ("outputs.2.strides", [2], "without gaps|strides is"),
        ("inputs.0.strides", [1], "strides is"),
        ("inputs.0.dtype", "float8", "one of float64"),
        ("inputs.0.role", "loss", "one of state, batch, constant"),
        ("outputs.2.updates", 5, "a state input"),
        ("outputs.2.updates", 2, "a state input"),
        ("outputs.2.updates", 1, "a state input|shape or dtype"),
        ("outputs.1.updates", 0, "differs in shape or dtype"),
        ("outputs.2.updates", "0", "updates is '0'"),
        ("in_tree", {"kind": "leaf"}, "in_tree does not fit"),
        ("in_tree.children", [], "in_tree does not fit"),
        ("out_tree", {"kind": "leaf"}, "out_tree has 1 leaves"),
        ("out_tree", {"kind": "os.system"}, "unknown kind"),
        ("parameters", ["x"], "in_tree does not fit"),
        ("kernel.symbol", "a b", "symbol"),
        ("kernel.symbol", "", "symbol"),
        ("kernel.grid", [0, 1, 1], r"grid\[0\] is 0"),
        ("kernel.grid", [1, 1], "has 2 elements"),
        ("kernel.cluster", [2, 1, 1], "divide"),
        ("kernel.threads", 2048, "threads is 2048"),
        ("kernel.cooperative", 1, "cooperative is 1"),
        ("kernel.workspace_bytes", 2**60, "workspace_bytes"),
        ("kernel.workspace_align", 48, "a power of two"),
        ("kernel.schedule", 1, "schedule is 1"),
        ("numerics", [], "numerics is an array"),
    ],
)
def test_a_malformed_value_is_refused_by_name(path: str, value: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        Manifest.from_json(set_at(path, value))


@pytest.mark.parametrize("key", ["format", "version", "name", "target", "inputs", "outputs", "in_tree", "kernel"])
def test_a_missing_key_is_refused_by_name(key: str) -> None:
    changed = manifest()
    del changed[key]
    with pytest.raises(ArtifactError, match=f"has no '{key}'"):
        Manifest.from_json(changed)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"version": NaN}',
        b'{"version": 1e999}',
        b'{"version": ' + b"9" * 10000 + b"}",
        b"[" * 200_000,
        b'{"in_tree":' * 50_000,
        '{"name": "\ud800"}'.encode("utf-8", "surrogatepass"),
    ],
    ids=range(12),
)
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError):
        Manifest.from_bytes(data)


def test_a_deeply_nested_tree_is_refused() -> None:
    tree: dict[str, Any] = {"kind": "leaf"}
    for _ in range(300):
        tree = {"kind": "list", "children": [tree]}
    with pytest.raises(ArtifactError, match="nested too deeply"):
        Manifest.from_json(set_at("out_tree", tree))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(obj: Any, prefix: str = "") -> list[str]:
    """The path of every value in a JSON object."""
    items = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    return [found for key, value in items for found in (f"{prefix}{key}", *paths(value, f"{prefix}{key}."))]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(paths(manifest())), JSON)
def test_any_value_anywhere_gives_a_manifest_or_an_artifact_error(path: str, value: Any) -> None:
    try:
        data = json.dumps(set_at(path, value)).encode()
        read = Manifest.from_bytes(data)
    except ArtifactError:
        return
    assert Manifest.from_bytes(read.to_bytes()) == read


def test_contiguity_ignores_axes_of_one_element_and_empty_tensors() -> None:
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert contiguous_strides(()) == ()
    assert is_contiguous((2, 1, 4), (4, 999, 1))
    assert is_contiguous((0, 3), (1, 1))
    assert not is_contiguous((3, 2), (1, 3))
