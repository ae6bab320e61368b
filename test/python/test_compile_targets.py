"""What is compiled for: architectures by name, and what this machine has."""

from __future__ import annotations

import pytest

from compile_support import error_of
from fake_driver import FakeDriver
from trainkernel.compiler import cpu_targets
from trainkernel.compiler.cpu_targets import LEVELS, cpu_target, native_target
from trainkernel.compiler.targets import resolve_target
from trainkernel.errors import CompileError, DeviceError
from trainkernel.manifest import CudaTarget
from trainkernel.runtime.cpu_features import check_host, host_flags, missing_features


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "sm_90a"), ((8, 0), "sm_80"), ((8, 6), "sm_80"), ((8, 9), "sm_80")]
)
def test_the_gpu_here_decides(driver: FakeDriver, capability: tuple[int, int], arch: str) -> None:
    driver.capability = capability
    target = resolve_target("cuda")
    assert isinstance(target, CudaTarget)
    assert target.arch == arch and target.runs_on(*capability)


@pytest.mark.parametrize("capability", [(7, 5), (10, 0), (12, 0)])
def test_a_gpu_that_no_code_is_made_for_is_refused_unless_another_is_named(
    driver: FakeDriver, capability: tuple[int, int]
) -> None:
    driver.capability = capability
    error = error_of(CompileError, lambda: resolve_target("cuda"))
    assert f"{capability[0]}.{capability[1]}" in str(error) and "sm_80 or sm_90a" in str(error)
    assert resolve_target("cuda", "sm_80").arch == "sm_80"


def test_without_a_gpu_it_is_sm_90a(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("no driver")

    monkeypatch.setattr("trainkernel.runtime.driver.get_driver", absent)
    assert resolve_target("cuda").arch == "sm_90a"


@pytest.mark.parametrize(
    ("kind", "arch", "said"),
    [
        ("cuda", "sm_70", "sm_80, sm_90a"),
        ("cuda", "sm_90", "use sm_90a"),
        ("cuda", "sm_86", "use sm_80"),
        ("cuda", "x86-64-v3", "sm_80, sm_90a"),
        ("cuda", "x86-64-v3", 'use target="cpu" in Python, --target cpu of tk-compile'),
        ("cpu", "sm_90a", 'use target="cuda" in Python, --target cuda of tk-compile'),
        ("cpu", "sm_75", "the architecture is 'sm_75', expected one of sm_80, sm_90a"),
        ("cpu", "znver4", "x86-64-v3"),
        ("tpu", None, '"cuda" or "cpu"'),
    ],
)
def test_other_names_are_refused_with_what_to_write(kind: str, arch: str | None, said: str) -> None:
    assert said in str(error_of(CompileError, lambda: resolve_target(kind, arch)))


def test_native_code_passes_the_loaders_check_and_names_all_that_it_uses() -> None:
    target = native_target()
    check_host(target.arch, target.features)
    flags = host_flags()
    for feature in target.features:
        assert bool(missing_features([f"+{feature[1:]}"], flags)) == feature.startswith("-")
    assert {feature[1:] for feature in target.features} >= set(LEVELS["x86-64-v4"])


def test_levels_contain_each_other_and_name_what_they_use() -> None:
    assert set(LEVELS["x86-64-v2"]) < set(LEVELS["x86-64-v3"]) < set(LEVELS["x86-64-v4"])
    target = cpu_target("x86-64-v3")
    assert target.arch == "x86-64-v3" and "+avx2" in target.features and "+fma" in target.features
    assert not any("avx512" in feature for feature in target.features)


def test_a_masked_instruction_set_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    without = frozenset(flag for flag in host_flags() if not flag.startswith("avx512"))
    monkeypatch.setattr(cpu_targets, "host_flags", lambda: without)
    features = native_target().features
    assert "-avx512f" in features and "-avx512vnni" in features
    assert not any(feature.startswith("+avx512") for feature in features)


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "name"),
    [
        ("AuthenticAMD", 25, 17, 1, "znver4"),
        ("AuthenticAMD", 25, 1, 1, "znver3"),
        ("AuthenticAMD", 23, 49, 0, "znver2"),
        ("AuthenticAMD", 26, 2, 1, "znver5"),
        ("GenuineIntel", 6, 0x55, 4, "skylake-avx512"),
        ("GenuineIntel", 6, 0x55, 7, "cascadelake"),
        ("GenuineIntel", 6, 0x8F, 8, "sapphirerapids"),
        ("GenuineIntel", 6, 0x01, 1, None),
        ("Other", 1, 1, 1, None),
    ],
)
def test_cpus_have_llvms_names(vendor: str, family: int, model: int, stepping: int, name: str | None) -> None:
    cpu = {"vendor_id": vendor, "cpu family": str(family), "model": str(model), "stepping": str(stepping)}
    assert cpu_targets._llvm_name(cpu) == name


def test_an_unknown_cpu_is_the_highest_level_that_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_targets, "_identification", dict)
    v3 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    assert cpu_targets._level_of(set()) == "x86-64-v4"
    assert cpu_targets._level_of(v3) == "x86-64-v3"
    assert cpu_targets._level_of(v3 | {"avx2"}) == "x86-64-v2"
    assert cpu_targets._level_of({"sse3"}) == "x86-64"
    assert native_target().arch.startswith("x86-64")
