"""Compiles the steps of the benchmarks for a GPU, on any machine: ``python -m benchmarks.build``.

The output folder gets for each step NAME.cubin and NAME.profile.cubin, which records when its phases end, and
``build.json``, which holds for each step how long each stage took,
what the compiler decided, or why it refused the step. ``python -m benchmarks.measure`` on the GPU's machine reads it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.folder import (
    BUILD_FILE,
    DEFAULT_FOLDER,
    copy_call_library,
    profile_path,
    read_build,
    write_build,
)
from benchmarks.limits import OverTime, time_limit
from benchmarks.steps.common import Case
from benchmarks.suite import select
from trainkernel.capture import capture
from trainkernel.compiler import compile_step
from trainkernel.errors import InternalError, TrainKernelError

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class BuildOptions:
    """What to build for, and where.

    Attributes:
        folder: gets the compiled files.
        arch: of the GPU, e.g. "sm_90a".
        limit: seconds that one step may take.
        profiles: whether to build each step a second time, with its clock.
    """

    folder: Path
    arch: str
    limit: float
    profiles: bool = True


def build_case(case: Case, options: BuildOptions) -> dict[str, Any]:
    """Compile one step and return its entry of ``build.json``; an error is an entry, too."""
    seconds: dict[str, float] = {}
    entry: dict[str, Any] = {"summary": case.summary, "seconds": seconds}
    state, batches = case.arguments("meta")
    start = time.perf_counter()
    try:
        with time_limit(options.limit):
            captured = capture(case.step(), (state, *batches[0]))
            seconds["capture"] = time.perf_counter() - start
            made = compile_step(captured, target="cuda", arch=options.arch, fp32=case.fp32, keep_all=True)
            profiled = (
                compile_step(captured, target="cuda", arch=options.arch, fp32=case.fp32, profile=True)
                if options.profiles
                else None
            )
    except OverTime as error:
        return entry | {"status": "internal error", "error": f"the compiler is {error}"}
    except TrainKernelError as error:
        status = "internal error" if isinstance(error, InternalError) else "refused"
        # Results are compared between machines, so that paths are those of the checkout.
        return entry | {"status": status, "error": str(error).replace(f"{_ROOT}/", "")}
    assert made.data is not None and made.report is not None
    seconds |= made.seconds
    path = options.folder / f"{case.name}.cubin"
    path.write_bytes(made.data)
    report = made.report.to_json()
    report.pop("seconds")
    entry |= {"status": "built", "file": path.name, "report": report}
    if profiled is None or profiled.data is None:
        return entry
    profile_path(options.folder, case.name).write_bytes(profiled.data)
    return entry | {"profile": profile_path(options.folder, case.name).name}


def _line(name: str, entry: dict[str, Any]) -> str:
    if entry["status"] != "built":
        return f"{name:15} {entry['status'].upper()}: {entry['error']}"
    report, seconds = entry["report"], entry["seconds"]
    barriers = ", ".join(f"{count} {scope}" for scope, count in report["barriers"].items()) or "none"
    grid = "x".join(str(size) for size in report["grid"])
    spills = f", {report['spill_bytes']} B spilled" if report["spill_bytes"] else ""
    predicted = report["plan"]["predicted_ns"]
    times = f", {predicted / 1e3:.2f} us predicted" if predicted else ""
    return (
        f"{name:15} {sum(seconds.values()):5.2f} s ({seconds['capture']:.2f} capture), "
        f"{len(report['phases'])} phases, barriers: {barriers}, grid {grid}{times}{spills}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what the command line asks for; the status is 2 for a fault of the compiler, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.build", description=__doc__)
    parser.add_argument("names", nargs="*", help="steps, or the groups suite, own, all (default: all)")
    parser.add_argument("--output", type=Path, default=DEFAULT_FOLDER, help="folder (default: %(default)s)")
    parser.add_argument("--arch", default="sm_90a", help="architecture of the GPU (default: %(default)s)")
    parser.add_argument("--no-profiles", action="store_true", help="do not build each step again with a clock in it")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one step (default: %(default)s)")
    given = parser.parse_args(arguments)
    cases = select(given.names)
    options = BuildOptions(given.output, given.arch, given.limit, not given.no_profiles)
    options.folder.mkdir(parents=True, exist_ok=True)
    copy_call_library(options.folder)
    # Steps that were built before and are not named now stay.
    old = read_build(options.folder) if (options.folder / BUILD_FILE).is_file() else {}
    entries: dict[str, Any] = old["steps"] if old.get("arch") == options.arch else {}
    for case in cases:
        (options.folder / f"{case.name}.cubin").unlink(missing_ok=True)
        profile_path(options.folder, case.name).unlink(missing_ok=True)
        entries[case.name] = build_case(case, options)
        print(_line(case.name, entries[case.name]), flush=True)
        write_build(options.folder, options.arch, entries)
    return 2 if any(entries[case.name]["status"] == "internal error" for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
