"""``tk-compile``: compiles the training step in a Python file to one file that holds one kernel.

Importing this module must stay cheap: ``--help`` imports neither PyTorch nor rich.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from trainkernel.cli.display import progress_display, show_error, show_times, show_unexpected
from trainkernel.cli.options import EPILOG, ROLE_OPTIONS, Options, with_options
from trainkernel.cli.script import check_script, find_arguments, find_step, load_script
from trainkernel.cli.signals import ended_by_signals
from trainkernel.cli.streams import drop_stdout, lost_stdout, open_closed_streams, say, stdout_for_messages
from trainkernel.errors import TrainKernelError, machine_error
from trainkernel.garbage import collected_rarely

if TYPE_CHECKING:
    from trainkernel.capture import CapturedStep, StepRoles
    from trainkernel.cli.outputs import Outputs
    from trainkernel.compiler import CompiledArtifact


@click.command(
    "tk-compile", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@with_options
def command(**options: Any) -> Options:
    """Compile the training step in STEP.PY to one kernel, in one file.

    STEP.PY defines step(state, *batch), which returns (loss, new_state) or (loss, gradients, new_state), and
    example_args().
    """
    return Options(**options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tk-compile and return its exit status.

    0 done; 1 the user's or the machine's to change; 2 a fault of ours; 130, 143, ... ended by a signal; 141 whoever
    read our stdout has gone.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    with ended_by_signals() as received:
        try:
            # The script imports PyTorch.
            with warnings.catch_warnings(), collected_rarely():
                warnings.simplefilter("ignore")
                _command_line(given)
        except KeyboardInterrupt:
            say("tk-compile: interrupted")
            return received.status
        except BaseException as error:
            # An interrupt during the import of a C extension arrives as another error.
            return received.status if received.number else _failed(error, given)
    return 0


def _command_line(given: list[str]) -> None:
    try:
        with command.make_context("tk-compile", list(given)) as context:
            options = command.invoke(context)
    except click.exceptions.Exit:
        # After --help or --version.
        return
    except BrokenPipeError:
        raise
    except OSError as error:
        raise lost_stdout(error) from error
    _run(options)


def _command_with_roles(given: Sequence[str], roles: StepRoles) -> str:
    """The command line that was given, with these roles."""
    kept: list[str] = []
    words = iter(given)
    for word in words:
        if word in ROLE_OPTIONS:
            next(words, None)
        elif word.partition("=")[0] not in ROLE_OPTIONS:
            kept.append(word)
    return shlex.join(["tk-compile", *kept, *roles.to_options()])


def _failed(error: BaseException, given: list[str]) -> int:
    """Say what went wrong, and return the exit status for it."""
    if isinstance(error, BrokenPipeError):
        # Whoever read our stdout, such as head, has seen enough.
        drop_stdout()
        return 128 + signal.SIGPIPE
    if isinstance(error, click.ClickException):
        say(f"tk-compile: error: {error.format_message()}\n  help: see tk-compile --help")
        return 1
    known = machine_error(error) or error
    if isinstance(known, TrainKernelError):
        proposal: StepRoles | None = getattr(known, "proposal", None)
        if proposal is not None:
            known.hint = f"{getattr(known, 'lead', 'declare the roles')}: {_command_with_roles(given, proposal)}"
        show_error(known)
        return known.exit_code
    show_unexpected(error, given)
    return 2


def _run(options: Options) -> None:
    outputs = _check_outputs(options)
    seconds: dict[str, float] = {}
    with progress_display() as progress:
        captured = _capture(options, seconds, progress)
        made = _compile(options, outputs, captured, progress).timed(seconds)
    outputs.write(made.outputs[options.until_after], made)
    # The report as text has the times too.
    if options.verbose and not options.report:
        show_times(made.seconds)
    written = outputs.describe(options)
    if written and not options.quiet:
        say(written)


def _check_outputs(options: Options) -> Outputs:
    """Refuse what cannot succeed, before the long work."""
    from trainkernel.cli.outputs import check_arch, check_outputs
    from trainkernel.compiler.plan import read_plan
    from trainkernel.compiler.stages import find_stage, stages_for
    from trainkernel.compiler.targets import check_grid, resolve_target

    check_arch(options)
    target = resolve_target(options.kind, options.arch)
    find_stage(options.until_after, target)
    check_grid(options.grid, target)
    read_plan(",".join(options.plans), options.until_after)
    check_script(options.script)
    return check_outputs(options, stages_for(target))


def _roles(options: Options) -> StepRoles:
    from trainkernel.capture.roles import INFERRED, StepRoles

    loss = INFERRED if options.loss is None else options.loss
    return StepRoles.parse(loss=loss, gradients=options.gradients, updates=options.updates, constants=options.constants)


def _capture(options: Options, seconds: dict[str, float], progress: Callable[[str], None]) -> CapturedStep:
    from trainkernel.capture import capture, is_step_name

    # PyTorch logs to stderr from C++ too.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    start = time.perf_counter()
    progress(f"running {options.script}")
    module = load_script(options.script)
    step = find_step(module, options.script, options.step)
    arguments = find_arguments(module, options.script, options.args)
    seconds["script"] = time.perf_counter() - start
    progress("capture")
    name = options.step if is_step_name(options.step) else "step"
    with stdout_for_messages():
        captured = capture(step, arguments, name=name, roles=_roles(options))
    seconds["capture"] = time.perf_counter() - start - seconds["script"]
    return captured


def _compile(
    options: Options, outputs: Outputs, captured: CapturedStep, progress: Callable[[str], None]
) -> CompiledArtifact:
    from trainkernel.compiler import compile_step

    return compile_step(
        captured,
        target=options.kind,
        arch=options.arch,
        grid=options.grid,
        plan=",".join(options.plans),
        fp32=options.fp32,
        until_after=options.until_after,
        dump_dir=outputs.dump_dir,
        keep_all=options.verbose,
        progress=progress,
    )


def run() -> NoReturn:
    """Run tk-compile as a program.

    Python would take PyTorch's modules down one by one at the end, for over a second, when all is written. What was
    registered to run at exit still does.
    """
    status = main()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
