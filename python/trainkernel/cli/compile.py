"""``tk-compile``: compiles the training step in a Python file to one file that holds one kernel.

Importing this module must stay cheap: ``--help`` imports neither PyTorch nor rich.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from trainkernel.cli.display import progress_display, show_error, show_times, show_unexpected
from trainkernel.cli.options import EPILOG, ROLE_OPTIONS, SUFFIXES, Options, with_options
from trainkernel.errors import CaptureError, CompileError, TrainKernelError

if TYPE_CHECKING:
    from trainkernel.capture import CapturedStep, StepRoles
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
    """Run tk-compile and return its exit status: 0, 1 for the user's mistakes, 2 for faults of ours, 130, 143."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # A terminated compilation cleans up as an interrupted one does.
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = command.main(args=given, prog_name="tk-compile", standalone_mode=False)
            # Otherwise it is the status after --help or --version.
            if isinstance(options, Options):
                _run(options)
    except click.ClickException as error:
        print(f"tk-compile: error: {error.format_message()}\n  help: see tk-compile --help", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, click.Abort):
        print("tk-compile: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our stdout, such as head, has seen enough. Python itself must not flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except _Terminated:
        return 128 + signal.SIGTERM
    except TrainKernelError as error:
        proposal: StepRoles | None = getattr(error, "proposal", None)
        if proposal is not None:
            error.hint = f"declare the roles: {_command_with_roles(given, proposal)}"
        show_error(error)
        return error.exit_code
    except Exception as error:
        show_unexpected(error, given)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


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


class _Terminated(BaseException):
    """SIGTERM came."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


def _run(options: Options) -> None:
    _check_outputs(options)
    seconds: dict[str, float] = {}
    with progress_display() as progress:
        captured = _capture(options, seconds, progress)
        made = _compile(options, captured, progress).timed(seconds)
    _write(options, made)
    if options.verbose:
        show_times(made.seconds)


def _check_outputs(options: Options) -> None:
    """Refuse what could not be written, before the long work."""
    from trainkernel.compiler.files import check_destination, make_folder
    from trainkernel.compiler.stages import find_stage
    from trainkernel.compiler.targets import resolve_target

    find_stage(options.until_after, resolve_target(options.kind, options.arch))
    suffix = Path(options.output or "").suffix
    if options.until_after == "binary" and suffix in SUFFIXES.values() and suffix != SUFFIXES[options.kind]:
        expected = f"a name that ends in {SUFFIXES[options.kind]} for the target {options.kind}"
        raise CompileError(f"the output is {options.output!r}", expected=expected)
    if options.until_after in ("object", "binary") and options.destination is None and sys.stdout.isatty():
        raise CompileError("the output is a terminal", expected="a file for what is not text")
    if options.until_after != "binary" and (options.report or options.report_json):
        raise CompileError("there is no report before the last stage", hint="leave --until-after out")
    if options.dump_dir is not None:
        make_folder(options.dump_dir)
    for path in (options.destination, options.report_json):
        if path is not None:
            check_destination(path)


def _roles(options: Options) -> StepRoles:
    from trainkernel.capture.roles import INFERRED, StepRoles

    loss = INFERRED if options.loss is None else options.loss
    return StepRoles.parse(loss=loss, gradients=options.gradients, updates=options.updates, constants=options.constants)


def _capture(options: Options, seconds: dict[str, float], progress: Callable[[str], None]) -> CapturedStep:
    from trainkernel.capture import capture
    from trainkernel.cli.script import find_arguments, find_step, load_script

    # PyTorch logs to stderr from C++ too.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    start = time.perf_counter()
    progress(f"running {options.script}")
    module = load_script(options.script)
    step = find_step(module, options.script, options.step)
    arguments = find_arguments(module, options.script, options.args)
    seconds["script"] = time.perf_counter() - start
    progress("capture")
    name = options.step if options.step.isidentifier() else "step"
    try:
        with redirect_stdout(sys.stderr):
            captured = capture(step, arguments, name=name, roles=_roles(options), compilable=True)
    except SystemExit as error:
        raise CaptureError(f"{options.step} ended the program while it was captured", expected="a result") from error
    seconds["capture"] = time.perf_counter() - start - seconds["script"]
    return captured


def _compile(options: Options, captured: CapturedStep, progress: Callable[[str], None]) -> CompiledArtifact:
    from trainkernel.compiler import compile_step

    return compile_step(
        captured,
        target=options.kind,
        arch=options.arch,
        grid=options.grid,
        until_after=options.until_after,
        dump_dir=options.dump_dir,
        keep_all=options.verbose,
        progress=progress,
    )


def _write(options: Options, made: CompiledArtifact) -> None:
    from trainkernel.compiler.files import write_atomically

    data = made.outputs[options.until_after]
    if options.destination is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_atomically(options.destination, data)
    if made.report is None:
        return
    if options.report_json:
        write_atomically(options.report_json, json.dumps(made.report.to_json(), indent=2).encode() + b"\n")
    if options.report:
        stream = sys.stdout if options.destination else sys.stderr
        print(made.report.to_text(), end="", file=stream)


if __name__ == "__main__":
    sys.exit(main())
