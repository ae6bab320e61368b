"""``compile_training``: from a Python function to a compiled one, in one process."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainkernel.compiler.driver import CompiledArtifact, compile_step
from trainkernel.compiler.files import check_destination, write_atomically
from trainkernel.compiler.plan import Plan, read_plan
from trainkernel.compiler.stages import DEFAULT_FP32, check_fp32, find_stage, stages_for
from trainkernel.compiler.targets import kind_of_arch, resolve_target
from trainkernel.errors import (
    ArgumentError,
    CaptureError,
    CompileError,
    InternalError,
    TrainKernelError,
    describe,
    machine_error,
)
from trainkernel.manifest import Manifest, TensorSpec
from trainkernel.pytree import NamedTupleTypes, flatten, namedtuple_types
from trainkernel.report import Report
from trainkernel.runtime import CapturedProgram, LoadedStep
from trainkernel.runtime.artifact import parse
from trainkernel.runtime.step import load_artifact

if TYPE_CHECKING:
    from trainkernel.capture import CapturedStep, StepRoles

_NO_TEXT = ("object", "binary")


def compile_training(
    step: Callable[..., Any],
    example_args: tuple[Any, ...],
    *,
    target: str = "auto",
    arch: str | None = None,
    roles: StepRoles | None = None,
    name: str | None = None,
    donate: bool = False,
    grid: int = 0,
    plan: Plan = "",
    fp32: str = DEFAULT_FP32,
    verbose: bool = False,
) -> CompiledTrainingStep:
    """Compile a functional training step to one kernel.

    Args:
        step: ``step(state, *batch) -> (loss, new_state)`` or ``(loss, gradients, new_state)``; other outputs, such as
            metrics, stand between the loss and the new state, too. :func:`trainkernel.training_step` makes one of an
            ``nn.Module`` and an optimizer.
        example_args: its arguments by position; only structure, shapes and dtypes of their tensors count.
        target: "cuda", "cpu", or "auto" for what the architecture is of, or else for the device of the example tensors.
        arch: e.g. "sm_90a" or "x86-64-v3"; by default that of this machine.
        roles: where the step's arguments and outputs are paired otherwise; what it leaves out is inferred. By default
            the attribute ``roles`` of the step, where it has one. The report shows all. See :class:`StepRoles`.
        name: of the kernel; by default that of the function.
        donate: whether calls update the state in place unless they say otherwise. Refused without state.
        grid: CTAs of the kernel, for a device that holds fewer at once than usual; 0 lets the planner choose.
        plan: what else the planner does not choose, e.g. ``"cluster=16,tile[3.0]=64x64x256"`` or
            ``{"cluster": 16, "tile[3.0]": (64, 64, 256)}``; the report names each operation. What the step cannot
            have is refused. See docs/performance.md.
        fp32: how matrix products of float32 are computed on a GPU: "ieee" in true float32; "tf32x3" on tensor cores in
            two tf32 parts, with an error about as small. A CPU always computes the former. See docs/numerics.md.
        verbose: write the stages and their times to stderr.

    Raises:
        CaptureError: the step is no static functional step.
        RolesError: a CaptureError: its roles are not clear, or do not fit; ``proposal`` is what to declare, or None.
        CompileError: it cannot be compiled for the target, or a package that compiling needs is not installed.
        InternalError: a fault of TrainKernel.
        TypeError: an argument has another type than above; the message names it.
    """
    from trainkernel.capture import StepRoles, capture

    _check_types(
        ("target", target, str, False, '"auto", "cuda" or "cpu"'),
        ("arch", arch, str, True, 'a string such as "sm_90a", or None'),
        ("roles", roles, StepRoles, True, "a trainkernel.StepRoles, or None"),
        ("name", name, str, True, "a string, or None"),
        ("donate", donate, bool, False, "True or False"),
        ("grid", grid, int, False, "a whole number, 0 for the planner's choice"),
        ("plan", plan, (str, Mapping), False, 'a string or a dict such as {"grid": 16, "tile[3.0]": (64, 64, 256)}'),
        ("fp32", fp32, str, False, '"ieee" or "tf32x3"'),
        ("verbose", verbose, bool, False, "True or False"),
    )
    kind, device = _device_of(example_args)
    if target not in ("auto", "cuda", "cpu"):
        raise CompileError(f"the target is {target!r}", expected='"auto", "cuda" or "cpu"')
    check_fp32(fp32)
    if arch is not None:
        kind = kind_of_arch(arch)
    resolved = resolve_target(kind if target == "auto" else target, arch, device or 0)
    overrides = read_plan(plan)
    say = _say if verbose else None
    if say:
        say("capture")
    recorder = _Recorder(step)
    function = recorder if callable(step) else step
    start = time.perf_counter()
    with _faults_named():
        captured = capture(function, example_args, name=name or _name_of(step), roles=roles)
    seconds = {"capture": time.perf_counter() - start}
    if donate and not captured.manifest["roles"]["updates"]:
        raise CaptureError(
            "donate is True, but the step has no state to update in place",
            expected="roles that name the next value of an argument",
            hint="leave donate out, or declare the state, e.g. roles=StepRoles(updates={'out[1]': 'state'})",
        )
    with _faults_named():
        made = compile_step(captured, target=resolved, grid=grid, plan=overrides, fp32=fp32, progress=say).timed(
            seconds
        )
    if say and made.report:
        say(made.report.to_text())
    return CompiledTrainingStep(
        captured, made, recorder.types, device=device, donate=donate, planned=_Planned(grid, overrides, fp32)
    )


@contextlib.contextmanager
def _faults_named() -> Iterator[None]:
    """Raises an exception of a kind that the caller knows: what else arises is a fault of ours, or the machine's."""
    try:
        yield
    except TrainKernelError:
        raise
    except Exception as error:
        raise machine_error(error) or InternalError(
            f"the compiler failed: {describe(error)}",
            hint="this is a fault of trainkernel; report it with the traceback and the step",
        ) from error


def _check_types(*arguments: tuple[str, object, type | tuple[type, ...], bool, str]) -> None:
    for name, value, kind, may_be_none, expected in arguments:
        # bool is a subclass of int.
        is_right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not is_right and not (value is None and may_be_none):
            raise TypeError(f"compile_training: {name} is {value!r}, expected {expected}")


def _say(text: str) -> None:
    print(f"trainkernel: {text}", file=sys.stderr)


@dataclass(frozen=True)
class _Planned:
    """What the user decided in the place of the defaults and the planner."""

    grid: int = 0
    plan: str = ""
    fp32: str = DEFAULT_FP32


class CompiledTrainingStep:
    """A compiled step, called like the function it was compiled from; :func:`compile_training` makes it.

    A call returns what the function would: fresh tensors, with the arguments untouched. With ``donate=True`` the state
    is updated in place instead. The code is loaded at the first call, so that a step for a GPU can be compiled, looked
    at and saved on a machine without one.
    """

    def __init__(
        self,
        captured: CapturedStep,
        made: CompiledArtifact,
        types: NamedTupleTypes,
        *,
        device: int | None = None,
        donate: bool = False,
        planned: _Planned = _Planned(),
    ) -> None:
        assert made.data is not None and made.manifest is not None and made.report is not None
        self._captured = captured
        self._target = made.target
        self._data, self._manifest, self._report = made.data, made.manifest, made.report
        self._texts: dict[str, str] = made.texts
        self._types = types
        self._device = device
        self._donate = donate
        self._planned = planned
        self._loaded: LoadedStep | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def manifest(self) -> Manifest:
        """Everything about the step but its code."""
        return self._manifest

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the step takes, in the order of its arguments' leaves."""
        return self._manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the step returns, in the order of its result's leaves."""
        return self._manifest.outputs

    def __call__(self, *args: Any, donate: bool | None = None, stream: Any = None, **named: Any) -> Any:
        """Run one step; see :meth:`trainkernel.LoadedStep.__call__`.

        Raises:
            ArgumentError: an argument does not fit, or the step is closed; nothing was launched.
            DeviceError: there is no device that can run the step, or the launch failed.
        """
        loaded = self._loaded or self._load()
        return loaded.call(args, named, self._donate if donate is None else donate, stream)

    def run(
        self, *args: Any, steps: int | None = None, donate: bool | None = None, stream: Any = None, **named: Any
    ) -> Any:
        """Run several steps in one launch; see :meth:`trainkernel.LoadedStep.run`.

        Raises:
            ArgumentError: an argument does not fit, or the step is closed; nothing was launched.
            DeviceError: there is no device that can run the step, or the launch failed.
        """
        loaded = self._loaded or self._load()
        return loaded.run(*args, steps=steps, donate=self._donate if donate is None else donate, stream=stream, **named)

    def capture(
        self,
        *args: Any,
        batches: Iterable[Sequence[Any]] | None = None,
        steps: int | None = None,
        donate: bool | None = None,
        **named: Any,
    ) -> CapturedProgram:
        """Capture calls of the step as one program to replay; see :meth:`trainkernel.LoadedStep.capture`.

        Raises:
            ArgumentError: an argument does not fit, the step is closed, or the current stream is being captured.
            DeviceError: there is no device that can run the step, or no memory.
        """
        loaded = self._loaded or self._load()
        return loaded.capture(*args, batches=batches, steps=steps, donate=donate, **named)

    def _load(self) -> LoadedStep:
        with self._lock:
            if self._closed:
                hint = "compile it again, or write it with .save(path) and load that with trainkernel.load(path)"
                raise ArgumentError(f"the step {self._manifest.name} is closed", expected="one in use", hint=hint)
            if self._loaded is None:
                found = parse(self._data, f"<compiled {self._manifest.name}>")
                device = self._device if self._target.kind == "cuda" else None
                self._loaded = load_artifact(found, device=device, types=self._types)
            return self._loaded

    def ir(self, stage: str = "schedule") -> str:
        """The text of a stage: "capture", "import", "fuse", "schedule", "lower" or, on a GPU, "ptx".

        Raises:
            CompileError: there is no such stage for the target, or it is not text.
        """
        found = find_stage(stage, self._target)
        if found.name in _NO_TEXT:
            names = ", ".join(other.name for other in stages_for(self._target) if other.name not in _NO_TEXT)
            raise CompileError(
                f"the stage {stage} is not text", expected=f"one of {names}", hint="use .save() for code"
            )
        if found.name not in self._texts:
            planned = self._planned
            made = compile_step(
                self._captured,
                target=self._target,
                until_after="lower",
                keep_all=True,
                grid=planned.grid,
                plan=planned.plan,
                fp32=planned.fp32,
            )
            self._texts |= made.texts
        return self._texts[found.name]

    @property
    def ptx(self) -> str:
        """The GPU assembly.

        Raises:
            CompileError: the step is compiled for the CPU.
        """
        if self._target.kind != "cuda":
            hint = 'compile it with target="cuda", or look at .ir("lower")'
            raise CompileError("a step for the CPU has no PTX", expected="a step for a GPU", hint=hint)
        return self.ir("ptx")

    def report(self) -> Report:
        """What the compiler decided: phases, barriers, memory, work."""
        return self._report

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the compiled file, which :func:`trainkernel.load` reads, and return its path.

        Args:
            path: with the extension .cubin for a GPU step, .so for a CPU step.

        Raises:
            CompileError: the extension is another, or the file cannot be written.
        """
        suffix = stages_for(self._target)[-1].suffix
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"save: path is {path!r}, expected a path that ends in {suffix}")
        if Path(path).suffix != suffix:
            raise CompileError(f"the output is {os.fspath(path)!r}", expected=f"a name that ends in {suffix}")
        check_destination(path)
        write_atomically(path, self._data)
        return Path(path)

    def close(self) -> None:
        """Unload the code and end the use of the step, as of a loaded one; it can still be looked at and saved.

        No launch may be under way.
        """
        with self._lock:
            loaded, self._loaded, self._closed = self._loaded, None, True
        if loaded is not None:
            loaded.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a compiled step cannot be pickled or copied: it holds loaded code; write it with .save(path) and read it "
            "with trainkernel.load(path)"
        )

    def __repr__(self) -> str:
        signature = f"{self._manifest.name}({', '.join(self._manifest.parameters)})"
        target = self._target
        return f"<compiled training step {signature} for {target.kind} {target.arch}, {len(self._data)} bytes>"


class _Recorder:
    """A step that notes the namedtuple types that it is given and returns, to rebuild results with them."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.types: NamedTupleTypes = {}
        # Where the capture finds the function itself, its file and its parameters, as with functools.partial.
        self.func = step
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(step)

    def __call__(self, *args: Any) -> Any:
        out = self.func(*args)
        for tree in (args, out):
            try:
                self.types.update(namedtuple_types(tree))
            except ArgumentError:
                continue  # The capture words this better.
        return out


def _name_of(step: Any) -> str:
    from trainkernel.capture import is_step_name

    name = getattr(step, "__name__", "step")
    return name if isinstance(name, str) and is_step_name(name) else "step"


def _device_of(example_args: Any) -> tuple[str, int | None]:
    """The kind and the ordinal of the device of the example tensors."""
    try:
        leaves, _ = flatten(example_args)
    except ArgumentError:
        return "cpu", None  # The capture refuses them.
    for leaf in leaves:
        device = getattr(leaf, "device", None)
        if getattr(device, "type", None) == "cuda":
            return "cuda", getattr(device, "index", None)
        if hasattr(type(leaf), "__cuda_array_interface__") and getattr(device, "type", None) is None:
            return "cuda", None
    return "cpu", None
