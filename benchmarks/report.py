"""Shows results: ``python -m benchmarks.report RESULTS.json...`` prints a table and writes a chart.

For each step that is slower than a peer it says so, and names the reason. ``--model`` prints, for each phase of each
step, the time that the compiler predicted beside the measured one.

Several files are taken as one; where two have a step, the later one counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.reasons import MODEL_HEADER, model_rows, reason

OURS = "trainkernel"
#: Ours, per step of a launch of 100.
MANY = "trainkernel x100"


def best_peer(record: dict[str, Any]) -> tuple[str, float] | None:
    """Name and median in microseconds of the fastest peer, or None if none was measured."""
    peers = [
        (timing["median"], name) for name, timing in record.get("us_per_step", {}).items() if name not in (OURS, MANY)
    ]
    return (min(peers)[1], min(peers)[0]) if peers else None


def faster_peers(record: dict[str, Any]) -> list[tuple[str, float]]:
    """Name and median in microseconds of each peer that is faster than we are, the fastest first."""
    timings = record.get("us_per_step", {})
    if OURS not in timings:
        return []
    ours = timings[OURS]["median"]
    peers = [
        (timing["median"], name)
        for name, timing in timings.items()
        if name not in (OURS, MANY) and timing["median"] < ours
    ]
    return [(name, median) for median, name in sorted(peers)]


def speed_up(record: dict[str, Any]) -> float | None:
    """How many times faster than the best peer; below 1 for a loss."""
    best = best_peer(record)
    ratio: float | None = best[1] / record["us_per_step"][OURS]["median"] if best else None
    return ratio


def _verdict(record: dict[str, Any]) -> str:
    ratio = speed_up(record)
    if ratio is None:
        return str(record["status"]).upper()
    return f"{ratio:.2f}x" if ratio >= 1 else f"{ratio:.2f}x SLOWER"


def _time(timing: dict[str, Any] | None) -> str:
    if timing is None:
        return "-"
    half = (timing["q3"] - timing["q1"]) / 2
    return f"{timing['median']:.2f} ±{half:.2f}"


def _rows(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, record in results["steps"].items():
        timings, best = record.get("us_per_step", {}), best_peer(record)
        ratio = record.get("worst_ratio")
        row = [
            name,
            _time(timings.get(OURS)),
            _time(timings.get(MANY)),
            *(_time(timings.get(peer)) for peer in results["peers"]),
        ]
        rows.append([*row, best[0] if best else "-", _verdict(record), "-" if ratio is None else f"{ratio:.2f}"])
    return rows


def _header(results: dict[str, Any]) -> list[str]:
    return ["step", OURS, "in a launch of 100", *results["peers"], "best peer", "faster by", "error / eager's"]


def show_record(name: str, record: dict[str, Any]) -> None:
    """Print one step's line: what the gates said, then the times."""
    if record["status"] != "measured":
        print(f"{name:15} {record['status'].upper()}: {record.get('error', '')}", flush=True)
        return
    times = ", ".join(f"{peer} {_time(timing)}" for peer, timing in record["us_per_step"].items())
    ratio = record["worst_ratio"]
    error = "" if ratio is None else f", error at most {ratio:.2f} of eager's"
    print(f"{name:15} right{error}; us per step: {times}; {_verdict(record)}", flush=True)
    for peer, why in record["peer_errors"].items():
        print(f"{name:15} {peer} FAILED: {why}", flush=True)
    for peer in record.get("peers_skipped", []):
        print(f"{name:15} {peer} NOT RACED: the step's time for peers was over", flush=True)


def show_table(results: dict[str, Any]) -> None:
    """Print all steps, with rich where it is installed."""
    machine = results["machine"]
    gpu = (machine["gpu"] or {}).get("name", "no GPU")
    title = f"us per step, median ± half the interquartile range; {gpu}, revision {results['revision']}"
    _print_table(title, _header(results), _rows(results))
    for name, record in results["steps"].items():
        if record["status"] != "measured":
            print(f"{name}: {record['status']}: {record.get('error', '')}")
        for peer in record.get("peers_skipped", []):
            print(f"{name}: {peer} was not raced: the step's time for peers was over")


def _print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        print(title)
        for row in [header, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    table = Table(title=title)
    for index, cell in enumerate(header):
        is_text = index == 0 or cell == "operations"
        table.add_column(cell, justify="left" if is_text else "right", no_wrap=not is_text)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def losses(results: dict[str, Any]) -> list[str]:
    """Lines that say which steps are slower than which peers, and why."""
    lines = []
    for name, record in results["steps"].items():
        faster = faster_peers(record)
        if not faster:
            continue
        ours = record["us_per_step"][OURS]["median"]
        listed = ", ".join(f"{peer} ({median:.2f} us)" for peer, median in faster)
        lines.append(f"{name} IS SLOWER: {ours:.2f} us a step, against {listed}")
        lines += [f"  {line}" for line in reason(record)]
    return lines


def show_losses(results: dict[str, Any]) -> None:
    """Print each step that is slower than a peer, with the reason, or that there is none."""
    found = losses(results)
    raced = sum(1 for record in results["steps"].values() if best_peer(record))
    print("\n".join(found) if found else f"no step of the {raced} that were raced is slower than a peer")


def show_model(results: dict[str, Any]) -> None:
    """Print, for each step with predictions, the predicted time of each phase beside the measured one."""
    for name, record in results["steps"].items():
        if rows := model_rows(record):
            _print_table(f"{name}: predicted and measured, us", MODEL_HEADER, rows)


def chart(results: dict[str, Any], path: Path) -> None:
    """Write a bar chart of the speed against the best peer, if matplotlib is installed and anything was measured.

    The axis is logarithmic, so that half as fast is as long a bar as twice as fast; a step without a speed has a line.
    """
    ratios = {name: speed_up(record) for name, record in results["steps"].items()}
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no chart", file=sys.stderr)
        return
    known = [ratio for ratio in ratios.values() if ratio is not None]
    if not known:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(ratios)[::-1]
    values = [ratios[name] or 1.0 for name in names]
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.32 * len(names)))
    colors = ["#2a78b5" if value >= 1 else "#c8442f" for value in values]
    bars = axes.barh(names, [value - 1 for value in values], left=1, color=colors, height=0.7)
    for bar, name, value in zip(bars, names, values, strict=True):
        label = _bar_label(results["steps"][name])
        axes.text(max(value, 1), bar.get_y() + bar.get_height() / 2, label, va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    ticks = [2.0**power for power in range(-4, 8) if min([*known, 0.5]) / 2 < 2.0**power < max([*known, 2]) * 2]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(min([*known, 0.5]) / 1.3, max([*known, 2]) * 8)
    axes.set_xlabel("times as fast as the best form of PyTorch that was measured (red: slower)")
    gpu = (results["machine"]["gpu"] or {}).get("name", "no GPU")
    axes.set_title(f"{gpu}, torch {results['machine']['packages'].get('torch')}, revision {results['revision']}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _bar_label(record: dict[str, Any]) -> str:
    best, ratio = best_peer(record), speed_up(record)
    if best is None or ratio is None:
        return f" {str(record['status']).upper()}: no speed"
    median = record["us_per_step"][OURS]["median"]
    slower = "" if ratio >= 1 else " SLOWER"
    return f" {ratio:.2f}x{slower}  ({median:,.1f} against {best[1]:,.1f} us, {best[0]})"


def merge(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Results of several runs as one; only those of one kind of machine and one revision should be merged."""
    merged = dict(parts[-1])
    merged["steps"] = {name: record for part in parts for name, record in part["steps"].items()}
    merged["peers"] = list(dict.fromkeys(peer for part in parts for peer in part["peers"]))
    return merged


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the results of the files on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--chart", type=Path, help="write the chart to this .png or .svg")
    parser.add_argument("--model", action="store_true", help="also print predicted and measured times of each phase")
    given = parser.parse_args(arguments)
    results = merge([json.loads(path.read_text()) for path in given.files])
    show_table(results)
    show_losses(results)
    if given.model:
        show_model(results)
    if given.chart:
        chart(results, given.chart)
    return 0


if __name__ == "__main__":
    sys.exit(main())
