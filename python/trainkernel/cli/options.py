"""The options of ``tk-compile``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainkernel import __version__

# Also in the compiler, which is not imported for --help.
STAGES = ("capture", "import", "fuse", "schedule", "lower", "ptx", "object", "binary")
FP32 = ("ieee", "tf32x3")
SUFFIXES = {"cuda": ".cubin", "cpu": ".so"}
ROLE_OPTIONS = ("--loss", "--gradients", "--update", "--constant")

EPILOG = """\b
Example, step.py:
    import torch
    from torch.func import grad_and_value
\b
    def step(state, x, t):
        def loss(w):
            return ((x @ w - t) ** 2).mean()
        grads, value = grad_and_value(loss)(state)
        return value, state - 0.1 * grads
\b
    def example_args():
        return torch.randn(64, 64), torch.randn(32, 64), torch.randn(32, 64)
\b
Commands:
    tk-compile step.py -o step.cubin                 for the GPU
    tk-compile step.py -o step.so                    for this machine's CPU
    tk-compile step.py --until-after schedule        print the schedule
    tk-compile step.py -o step.cubin --dump-dir ir   keep every stage in ir/
\b
Roles: the first argument is the state and the last output its next value, unless the options --loss, --gradients,
--update and --constant say otherwise; each replaces only what it names. --report shows all roles.
\b
Plan: --report shows the predicted time of each phase and operation and the plans that were weighed. --plan decides
instead of the planner, and --report then shows both predictions:
    tk-compile step.py -o step.cubin --report --plan cluster=8,tile[0.0]=32x32x64
\b
Use:
    step = trainkernel.load("step.cubin")
    loss, state = step(state, x, t)
\b
Files: an output is complete or as it was before, never half-written. A step.so beside step.py hides it from
Python's `import step`; that of tk-compile is not concerned.
\b
Exit status: 0 done, 1 something to change in the step, the options or the machine, 2 a fault of trainkernel;
128 + N ended by the signal N.
"""


@dataclass(frozen=True)
class Options:
    """The command line.

    Attributes:
        script: the user's file.
        output: the file to write, or None.
        step, args: the names of the two functions in the script.
        target, arch: what for; None for the defaults.
        grid: CTAs of the kernel; 0 lets the planner choose.
        plans: overrides of the planner.
        fp32: how float32 products are computed.
        until_after: the last stage.
        dump_dir: folder for all stages, or None.
        verbose: write the times of the stages.
        quiet: do not say what was written.
        report, report_json: print the report, write it to a file.
        loss, gradients, updates, constants: declared roles; None and empty where they are inferred.
    """

    script: str
    output: str | None
    step: str
    args: str
    target: str | None
    arch: str | None
    grid: int
    plans: tuple[str, ...]
    fp32: str
    until_after: str
    dump_dir: str | None
    verbose: bool
    quiet: bool
    report: bool
    report_json: str | None
    loss: str | None
    gradients: tuple[str, ...]
    updates: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The kind of the target: as given, or as the stage, the output or the architecture imply."""
        if self.target is not None:
            return self.target
        suffix = Path(self.output or "").suffix
        is_cpu = suffix == ".so" or self.until_after == "object" or (self.arch or "").startswith(("x86-64", "native"))
        return "cpu" if is_cpu and suffix != ".cubin" else "cuda"

    @property
    def destination(self) -> str | None:
        """The file to write; None for stdout."""
        if self.output is not None or self.until_after != "binary":
            return None if self.output == "-" else self.output
        return Path(self.script).stem + SUFFIXES[self.kind]


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("script", metavar="STEP.PY"),
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        help="File to write: .cubin for a GPU, .so for the CPU; - for stdout. By default STEP.cubin, or STEP.so where "
        "--target or --arch is a CPU's.",
    ),
    click.option("--step", metavar="NAME", default="step", show_default=True, help="The function to compile."),
    click.option(
        "--args",
        metavar="NAME",
        default="example_args",
        show_default=True,
        help="The function that returns a tuple of example arguments; only structure, shapes and dtypes count.",
    ),
    click.option("--target", type=click.Choice(["cuda", "cpu"]), help="By default what the output's name says."),
    click.option(
        "--arch",
        metavar="ARCH",
        help="sm_90a, sm_80; native, x86-64-v2, -v3, -v4. By default this machine's, or sm_90a without a GPU.",
    ),
    click.option(
        "--grid",
        type=click.IntRange(min=0),
        default=0,
        help="CTAs of the kernel, for a GPU that holds fewer at once than usual. By default the planner chooses.",
    ),
    click.option(
        "--plan",
        "plans",
        multiple=True,
        metavar="KEY=VALUE,...",
        help="Override the planner: grid=N, cluster=N, tile[PHASE.OP]=SIZES, cta[PHASE.OP]=N, e.g. tile[3.0]=64x64x256 "
        "for the operation that --report names 3.0. Refused where the step cannot have it. Repeatable.",
    ),
    click.option(
        "--fp32",
        type=click.Choice(FP32),
        default="ieee",
        show_default=True,
        help="Matrix products of float32 on a GPU: true float32, or on tensor cores in two tf32 parts, about as exact. "
        "A CPU always computes the former.",
    ),
    click.option(
        "--until-after",
        type=click.Choice(STAGES),
        default="binary",
        help="Stop after a stage and write its text to the output, or to stdout.",
    ),
    click.option(
        "--dump-dir",
        metavar="DIR",
        help="Write every stage to DIR, e.g. 01-capture.mlir, also of a compilation that fails later. DIR is created.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Show the time of each stage."),
    click.option("-q", "--quiet", is_flag=True, help="Do not say what was written."),
    click.option("--report", is_flag=True, help="Print phases, barriers, memory, work and predicted times."),
    click.option("--report-json", metavar="FILE", help="Write the report as JSON; - for stdout."),
    click.option(
        "--loss", metavar="PATH", help="Role: the scalar loss, e.g. out[0]; '' for none. By default the first output."
    ),
    click.option(
        "--gradients",
        multiple=True,
        metavar="OUT=IN",
        help="Role: gradients, e.g. out[1]=state['p']; '' for none. Repeatable. By default what autograd made.",
    ),
    click.option(
        "--update",
        "updates",
        multiple=True,
        metavar="OUT=IN",
        help="Role: a state's next value, e.g. out[1]=state; '' for none. Repeatable. By default the last output is "
        "that of the first argument.",
    ),
    click.option(
        "--constant", "constants", multiple=True, metavar="PATH", help="Role: an input that stays. Repeatable."
    ),
    click.version_option(__version__, prog_name="tk-compile"),
)


def with_options(function: Any) -> Any:
    """Give a function all options of tk-compile, as keyword arguments named as in :class:`Options`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
