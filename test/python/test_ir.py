"""The Python API of the compiler's IR (trainkernel.ir)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlir", reason="needs MLIR's Python package: pip install '.[ir]'")

from trainkernel import ir
from trainkernel.compiler.tools import find_linker
from trainkernel.ir import _library, megakernel

STEP = """
func.func @step(%w: tensor<8x8xf32> {megakernel.role = "state", megakernel.path = "state"},
                %x: tensor<8x8xf32> {megakernel.role = "batch", megakernel.path = "x"})
    -> (tensor<8x8xf32> {megakernel.role = "new_state", megakernel.path = "out", megakernel.updates = 0 : i64}) {
  %empty = tensor.empty() : tensor<8x8xf32>
  %sum = linalg.add ins(%w, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%empty : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %sum : tensor<8x8xf32>
}
"""


@pytest.fixture
def context() -> Any:
    return ir.Context()


def _names(operation: Any) -> list[str]:
    """The names of all ops inside an op, in the order of a walk."""
    names: list[str] = []

    def visit(visited: Any) -> Any:
        names.append(visited.name)
        return ir.WalkResult.ADVANCE

    operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return names


def test_passes_transform_a_parsed_module(context: Any) -> None:
    module = ir.Module.parse(STEP, context)
    ir.PassManager.parse("builtin.module(tk-import,tk-fuse)", context).run(module.operation)
    names = _names(module.operation)
    assert "func.func" not in names
    assert {"megakernel.step", "megakernel.fused", "megakernel.return"} <= set(names)


def test_pipelines_reach_the_scheduled_form(context: Any) -> None:
    module = ir.Module.parse(STEP, context)
    pipeline = "builtin.module(tk-import,tk-fuse,tk-schedule{target=cpu})"
    ir.PassManager.parse(pipeline, context).run(module.operation)
    (kernel,) = module.body.operations
    assert isinstance(kernel, megakernel.KernelOp)
    assert kernel.sym_name.value == "step"
    assert kernel.target.value == "cpu"


def test_walk_meets_the_classes_of_the_ops(context: Any) -> None:
    text = """
    megakernel.step @same(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>})
        -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
      megakernel.return %w : tensor<4xf32>
    }
    """
    module = ir.Module.parse(text, context)
    step = module.body.operations[0]
    assert isinstance(step, megakernel.StepOp)
    assert [type(op) for op in step.body.blocks[0].operations] == [megakernel.ReturnOp]


def _arguments(**attributes: Any) -> Any:
    return ir.ArrayAttr.get([ir.DictAttr.get({f"megakernel.{name}": value for name, value in attributes.items()})])


def test_a_step_is_built_op_by_op(context: Any) -> None:
    with context, ir.Location.unknown():
        module = ir.Module.create()
        tensor = ir.RankedTensorType.get([8], ir.F32Type.get())
        with ir.InsertionPoint(module.body):
            step = megakernel.StepOp(
                "built",
                ir.TypeAttr.get(ir.FunctionType.get([tensor], [tensor])),
                arg_attrs=_arguments(role=megakernel.role(megakernel.Role.Batch)),
                res_attrs=_arguments(role=megakernel.role("output")),
            )
        entry = step.body.blocks.append(tensor)
        with ir.InsertionPoint(entry):
            fused = megakernel.FusedOp([tensor], [entry.arguments[0]])
            megakernel.ReturnOp([fused.results[0]])
        inner = fused.body.blocks.append(tensor)
        with ir.InsertionPoint(inner):
            megakernel.YieldOp([inner.arguments[0]])
    assert module.operation.verify()
    text = str(module)
    assert "megakernel.fused(%arg1 = %arg0 : tensor<8xf32>)" in text
    assert str(ir.Module.parse(text, context)) == text


def test_enums_are_attributes(context: Any) -> None:
    text = """
    megakernel.kernel @empty() attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64} {
      megakernel.return
    }
    """
    module = ir.Module.parse(text, context)
    body = module.body.operations[0].body.blocks[0]
    with context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(body):
        barrier = megakernel.BarrierOp(megakernel.Scope.Grid)
    assert str(barrier) == "megakernel.barrier <grid>"


def test_a_verifier_error_is_raised_with_its_diagnostics(context: Any) -> None:
    text = "megakernel.step @bad(%w: tensor<?xf32>) {\n  megakernel.return\n}"
    with pytest.raises(ir.MLIRError) as caught:
        ir.Module.parse(text, context)
    (diagnostic,) = caught.value.error_diagnostics
    assert "static" in diagnostic.message


def test_a_failing_pass_is_raised_with_its_diagnostics(context: Any) -> None:
    module = ir.Module.parse("func.func private @outside()", context)
    with pytest.raises(ir.MLIRError) as caught:
        ir.PassManager.parse("builtin.module(tk-import)", context).run(module.operation)
    assert caught.value.error_diagnostics


def test_a_context_made_elsewhere_can_be_taught_the_dialect() -> None:
    import mlir.ir

    context = mlir.ir.Context()
    ir.register(context)
    assert "megakernel" in str(mlir.ir.Attribute.parse("#megakernel.role<loss>", context))


def test_the_missing_package_is_named() -> None:
    program = "import sys; sys.modules['mlir'] = None; import trainkernel.ir"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: trainkernel.ir needs MLIR's Python package 22.1.8, which is not installed" in done.stderr
    assert "help: pip install '.[ir]'" in done.stderr


def test_another_version_of_the_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "MLIR_VERSION", (21, 1, 0))
    with pytest.raises(ImportError, match=r"MLIR's Python package has version 22\.1\.8, expected 21\.1\.0"):
        _library.load_library()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "_NAME", "libmissing.so")
    with pytest.raises(ImportError, match=r"libmissing\.so is missing\n  help: install trainkernel again"):
        _library.load_library()


def test_a_library_of_another_mlir_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.c").write_text("extern int of_another_mlir; int *used(void) { return &of_another_mlir; }\n")
    library = tmp_path / "libtrainkernel_mlir.so"
    subprocess.run([*find_linker(), "-shared", "-fPIC", tmp_path / "other.c", "-o", library], check=True)
    monkeypatch.setattr(_library, "_PACKAGE_FOLDER", tmp_path)
    with pytest.raises(ImportError, match=r"undefined symbol: of_another_mlir") as caught:
        _library.load_library()
    assert "help: it was built against another MLIR than the package's" in str(caught.value)
    # A file that is damaged was not.
    library.write_bytes(b"no library")
    with pytest.raises(ImportError, match=r"does not fit .*\n  help: pip install"):
        _library.load_library()


def test_importing_trainkernel_leaves_mlir_alone() -> None:
    program = "import sys, trainkernel; sys.exit('mlir' in sys.modules or 'trainkernel.ir' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
