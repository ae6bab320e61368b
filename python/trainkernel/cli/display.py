"""What the command line shows: progress on a terminal, times, errors. Everything here goes to stderr."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainkernel.cli.streams import say
from trainkernel.errors import TrainKernelError, describe
from trainkernel.reproducer import keep_files


@contextmanager
def progress_display() -> Iterator[Callable[[str], None]]:
    """A line that says what is being done, on a terminal only; yields the function that changes it."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda stage: progress.update(task, description=stage)


def show_times(seconds: Mapping[str, float]) -> None:
    """Write a table of the times of the stages."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    for stage, amount in seconds.items():
        table.add_row(stage, f"{amount:.3f}")
    table.add_section()
    table.add_row("total", f"{sum(seconds.values()):.3f}")
    Console(stderr=True).print(table)


def show_error(error: TrainKernelError) -> None:
    """Write an error of ours or of the user's."""
    say(f"tk-compile: {'error' if error.exit_code == 1 else 'internal error'}: {error}")


def show_unexpected(error: BaseException, arguments: Sequence[str]) -> None:
    """Write an exception that should not exist, and keep its traceback in a file."""
    text = "".join(traceback.format_exception(error))
    files = {"traceback.txt": text.encode(errors="backslashreplace")}
    try:
        where = f"the traceback is in {keep_files(files)}/traceback.txt"
    except OSError:
        where = f"its traceback cannot be written to a file:\n{text}"
    say(
        f"tk-compile: internal error: {describe(error)}\n"
        f"  help: this is a fault of trainkernel; reproduce it with: {shlex.join(['tk-compile', *arguments])}\n"
        f"  {where}"
    )
