"""A loaded step: the object that the caller calls."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol

from trainkernel.errors import ArgumentError
from trainkernel.manifest import Manifest, TensorSpec
from trainkernel.pytree import NamedTupleTypes
from trainkernel.report import Report, make_report
from trainkernel.runtime.artifact import Artifact
from trainkernel.runtime.binding import Binder
from trainkernel.runtime.checked_call import call_checked
from trainkernel.runtime.fast_call import FastCalls, Launcher
from trainkernel.runtime.many import StepsRunner
from trainkernel.runtime.native import NOT_FAST
from trainkernel.runtime.program import CapturedProgram, Recording, capture_program
from trainkernel.runtime.tensors import Device


class Backend(Launcher, Protocol):
    """Where a step runs.

    Attributes:
        device: the device.
        alignment: that tensors must have there in bytes, beyond that of their elements.
    """

    def launch(self, pointers: Sequence[int], stream: int | None) -> None:
        """Launch the kernel on the pointers of all inputs and outputs."""
        ...

    def record(self, launches: Sequence[Sequence[int]], stream: int | None) -> Recording:
        """Prepare launches on the pointers of all inputs and outputs, to be made again and again; runs none of them.

        Args:
            launches: in their order.
            stream: of the caller, which must not be captured now.
        """
        ...

    def launch_many(self, pointers: Sequence[int], stream: int | None, steps: int, ring: int) -> None:
        """Launch the kernel for several steps, with that many entries in the ring of each batch."""
        ...

    def finish(self, stream: int | None) -> None:
        """Wait for the launches on a stream, unless it is being captured."""
        ...

    def close(self) -> None:
        """Release the code and the workspace."""
        ...


class LoadedStep:
    """A compiled training step, called like the Python function it was compiled from.

    ``loss, new_state = step(state, x, t)`` takes the function's own arguments, with the tensors of any framework, and
    returns what it returned, in tensors of the framework of the first argument. The inputs stay as they are, and each
    call returns fresh tensors; with ``donate=True`` the state is updated in place instead.

    On the CPU a call returns when the step is done; calls of one step from several threads wait for each other, as do
    all steps of a process. On a GPU a call returns at once and is ordered by the current stream of the caller's
    framework; it can be captured in a CUDA graph, by the framework or with :meth:`capture`. Each stream, and each
    capture, has its own workspace, so that launches on different streams may overlap. A captured graph uses the code
    and a workspace of the step: keep the step as long as the graph. Two copies of one graph must not run at the same
    time.

    Attributes:
        manifest: everything that is known of the step.
        device: where it runs.
    """

    def __init__(self, artifact: Artifact, backend: Backend, types: NamedTupleTypes | None = None) -> None:
        self.manifest: Manifest = artifact.manifest
        self.device: Device = backend.device
        self._path, self._file_bytes = artifact.path, len(artifact.data)
        self._backend = backend
        self._runner: StepsRunner | None = None
        self._binder = Binder(self.manifest, backend.device, backend.alignment, types)
        self._fast = FastCalls(self.manifest, backend, self._binder.types)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the step takes, in the order of its arguments' leaves."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the step returns, in the order of its result's leaves."""
        return self.manifest.outputs

    def report(self) -> Report:
        """What the compiler decided, as the file tells it: phases, barriers, memory, work, roles.

        Registers, spills and the time of the compilation are not in the file; they are None and empty here.
        """
        return make_report(self.manifest, file_bytes=self._file_bytes)

    def __call__(self, *args: Any, donate: bool = False, stream: Any = None, **named: Any) -> Any:
        """Run one step.

        Args:
            args: the function's arguments, by position or by the names of its parameters; tensors contiguous, on the
                step's device, of the compiled shapes and dtypes.
            donate: update the state in place: the new state in the result is made of the very tensors passed in. They
                must be writable and overlap no other argument. Refused where the step has no state. To autograd this is
                an in-place change without gradient, as an optimizer's under ``torch.no_grad()``: a parameter keeps
                ``requires_grad``, and a backward pass that had saved the tensor raises. Without donation no result
                requires a gradient.
            named: arguments by the names of their parameters. The step's own parameters named donate and stream go by
                position.
            stream: on a GPU, the stream to launch on instead of the framework's current one: a CUstream handle as an
                int, or an object with ``__cuda_stream__``, ``cuda_stream`` or ``ptr``. Ordering the inputs and the
                further use of the results with that stream is up to the caller.

        Returns:
            What the function returned, e.g. ``(loss, new_state)``.

        Raises:
            ArgumentError: an argument does not fit; nothing was launched.
            DeviceError: the launch failed.
        """
        return self.call(args, named, donate, stream)

    def call(self, args: tuple[Any, ...], named: Mapping[str, Any], donate: object, stream: Any) -> Any:
        """Run one step, for wrappers: ``step(*args, donate=donate, stream=stream, **named)``, not packed once more."""
        if named:
            args = self._binder.positional(args, named)
        if stream is None and (donate is True or donate is False):
            result = self._fast.donating(args) if donate else self._fast.functional(args)
            if result is not NOT_FAST:
                return result
        return self._call_checked(args, donate, stream)

    def _call_checked(self, args: tuple[Any, ...], donate: object, stream: Any) -> Any:
        """The long way of a call, which words every error."""
        binder, backend = self._binder, self._backend
        if donate is not False:
            self._check_donate(donate)
        leaves = binder.leaves(args)
        plan, bound = call_checked(
            binder, backend, leaves, args, donate=donate is True, stream=stream, launch=backend.launch
        )
        if not bound.owners:
            self._fast.learn(leaves, bound.results, bound.pointers, plan.home)
        return binder.build(bound.results)

    def _check_donate(self, donate: object) -> None:
        if donate is not True:
            hint = "pass the step's own parameter donate by position" if "donate" in self.manifest.parameters else None
            raise ArgumentError(f"donate is a {type(donate).__name__}", expected="True or False", hint=hint)
        if not self._binder.donated:
            raise ArgumentError(
                f"donate is True, but {self.manifest.name} has no state to update in place",
                expected="a step whose roles name a next value of an argument",
                hint="call it without donate, or compile it with roles, e.g. StepRoles(updates={'out[1]': 'state'})",
            )

    def donate(self, *args: Any, stream: Any = None, **named: Any) -> Any:
        """Run one step and update the state in place: ``step(*args, donate=True)``."""
        if named:
            args = self._binder.positional(args, named)
        if stream is None:
            result = self._fast.donating(args)
            if result is not NOT_FAST:
                return result
        return self._call_checked(args, True, stream)

    def capture(
        self,
        *args: Any,
        batches: Iterable[Sequence[Any]] | None = None,
        steps: int | None = None,
        donate: bool | None = None,
        **named: Any,
    ) -> CapturedProgram:
        """Capture calls of the step as one program, which is replayed with one short call: on a GPU, a CUDA graph.

        ``program = step.capture(state, x, t)`` prepares one step; ``step.capture(state, batches=[(x0, t0), (x1, t1)])``
        chains one for each batch. Nothing is computed yet: the state is what it was. ``program()`` runs all steps; see
        :class:`~trainkernel.runtime.program.CapturedProgram`. The program reads and writes these very tensors at each
        replay: copy new batches into them.

        Args:
            args: the step's arguments as in a call; with ``batches``, those that all steps share, the state first.
            batches: for each, the remaining arguments as a tuple.
            steps: how many steps a replay takes, each from the state that the one before left; by default one for each
                batch. The batches are taken in turns.
            donate: whether the state is updated in place, from replay to replay; by default wherever there is a state.
                Otherwise each replay begins with the state as it is, and every step has a new state of its own.
            named: arguments by the names of their parameters; those named batches, steps and donate go by position.

        Raises:
            ArgumentError: an argument does not fit, or the current stream is being captured: capture the program
                before, and replay it there.
            DeviceError: the device has no memory or no graph.
        """
        return capture_program(self, args, named, batches, steps, donate)

    def run(self, *args: Any, steps: int | None = None, donate: bool = False, stream: Any = None, **named: Any) -> Any:
        """Run several steps in one launch, as ``jax.lax.scan`` runs them, with the bits of as many single calls.

        ``losses, new_state = step.run(state, xs, ys, steps=100)`` is, in one launch,::

            for i in range(100):
                losses[i], state = step(state, xs[i % R], ys[i % R])

        The state goes from step to step; every batch is a ring of R batches behind one another, over a new leading
        dimension, and is read where it is; constants are shared. What counts steps in the state, such as AdamW's
        counter or that of a schedule of learning rates, counts as ever.

        Args:
            args: as for a call, by position or by name, but each tensor with the role batch, as :attr:`inputs` names
                them, of shape ``(R, *shape)``: ``torch.stack(batches)``, or ``x[None]`` for one batch. R is the same
                for all of them and has nothing to do with ``steps``.
            steps: how many; by default R, so that each batch is used once.
            donate: update the state in place, as for a call.
            named: arguments by the names of their parameters. The step's own parameters named steps, donate and stream
                go by position.
            stream: as for a call.

        Returns:
            What the function returned: the next state after the last step, and all else of all steps, over a new
            leading dimension, e.g. losses of shape ``(steps,)``.

        Raises:
            ArgumentError: an argument does not fit, or the step was compiled by a version whose launches run one step;
                nothing was launched.
            DeviceError: the launch failed.
        """
        if donate is not False:
            self._check_donate(donate)
        if self._runner is None:
            self._runner = StepsRunner(self._binder, self._backend)
        return self._runner.run(args, named, steps, donate, stream)

    def close(self) -> None:
        """Unload the code and free the workspaces. No launch, and no captured graph, may be in use any more."""
        self._backend.close()

    def __enter__(self) -> LoadedStep:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a loaded step cannot be pickled or copied: it holds loaded code; load its file again, where it is needed, "
            f"with trainkernel.load({self._path!r})"
        )

    def __repr__(self) -> str:
        manifest = self.manifest
        where = f"{self.device} ({manifest.target.arch})"
        signature = f"{manifest.name}({', '.join(manifest.parameters)})"
        counts = f"{len(manifest.inputs)} inputs, {len(manifest.outputs)} outputs"
        return f"<trainkernel step {signature} from {os.path.basename(self._path)} on {where}: {counts}>"


def load(path: str | os.PathLike[str], *, device: Any = None) -> LoadedStep:
    """Load a compiled step.

    Args:
        path: a .cubin or .so file written by tk-compile.
        device: for a GPU step, which GPU: an ordinal, "cuda:1", or an object such as torch.device; by default that of
            the calling thread's current CUDA context, or the first. For a CPU step, "cpu" or None.

    Returns:
        The step, ready to be called.

    Raises:
        ArtifactError: the file is missing, foreign, damaged, or of a newer version. None of its code has run then.
        DeviceError: there is no driver or device, or the device cannot run this step.
        TypeError: the path is none.
    """
    from trainkernel.runtime import artifact as files

    if not isinstance(path, (str, os.PathLike)):
        # Not what bytes are: they may be those of the file.
        what = f"{len(path)} bytes" if isinstance(path, bytes) else repr(path)
        raise TypeError(f"load: path is {what}, expected the path of a .cubin or .so file")
    return load_artifact(files.read(os.fspath(path)), device=device)


def load_artifact(artifact: Artifact, *, device: Any = None, types: NamedTupleTypes | None = None) -> LoadedStep:
    """Load a step from bytes that passed the checks.

    Args:
        artifact: the step.
        device: see :func:`load`.
        types: the namedtuple types to build results with, beyond those met in arguments.

    Raises:
        ArtifactError: the code lacks the kernel.
        DeviceError: there is no driver or device, or the device cannot run this step.
    """
    return LoadedStep(artifact, _make_backend(artifact, device), types)


def _make_backend(artifact: Artifact, device: Any) -> Backend:
    # Imported here so that a CPU step needs no CUDA package, and a GPU step no thread pool.
    if artifact.manifest.target.kind == "cuda":
        from trainkernel.runtime.cuda import CudaBackend

        return CudaBackend(artifact, device)
    if device is not None and str(device) != "cpu":
        raise ArgumentError(f"device is {device!r} for a step compiled for the CPU", expected='"cpu" or None')
    from trainkernel.runtime.cpu import CpuBackend

    return CpuBackend(artifact)
