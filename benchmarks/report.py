"""Shows results: ``python -m benchmarks.report RESULTS.json...`` prints a table and writes a chart.

Several files are taken as one; where two have a step, the later one counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OURS = "trainkernel"
#: Ours, per step of a launch of 100.
MANY = "trainkernel x100"


def best_peer(record: dict[str, Any]) -> tuple[str, float] | None:
    """Name and median in microseconds of the fastest peer, or None if none was measured."""
    peers = [
        (timing["median"], name) for name, timing in record.get("us_per_step", {}).items() if name not in (OURS, MANY)
    ]
    return (min(peers)[1], min(peers)[0]) if peers else None


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


def show_table(results: dict[str, Any]) -> None:
    """Print all steps, with rich where it is installed."""
    machine = results["machine"]
    gpu = (machine["gpu"] or {}).get("name", "no GPU")
    title = f"us per step, median ± half the interquartile range; {gpu}, revision {results['revision']}"
    header, rows = _header(results), _rows(results)
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        print(title)
        for row in [header, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    else:
        table = Table(title=title)
        for index, cell in enumerate(header):
            table.add_column(cell, justify="left" if index == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 160).print(table)
    for name, record in results["steps"].items():
        if record["status"] != "measured":
            print(f"{name}: {record['status']}: {record.get('error', '')}")


def chart(results: dict[str, Any], path: Path) -> None:
    """Write a bar chart of the speed against the best peer, if matplotlib is installed and anything was measured."""
    ratios = {name: ratio for name, record in results["steps"].items() if (ratio := speed_up(record)) is not None}
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no chart", file=sys.stderr)
        return
    if not ratios:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, values = list(ratios)[::-1], list(ratios.values())[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.32 * len(names)))
    colors = ["#2a78b5" if value >= 1 else "#c8442f" for value in values]
    bars = axes.barh(names, values, color=colors, height=0.7)
    for bar, name, value in zip(bars, names, values, strict=True):
        best = best_peer(results["steps"][name])
        median = results["steps"][name]["us_per_step"][OURS]["median"]
        label = f" {value:.2f}x  ({median:,.1f} against {best[1]:,.1f} us, {best[0]})" if best else ""
        axes.text(bar.get_width(), bar.get_y() + bar.get_height() / 2, label, va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(0, max(values) * 1.6)
    axes.set_xlabel("times as fast as the best form of PyTorch that was measured (red: slower)")
    gpu = (results["machine"]["gpu"] or {}).get("name", "no GPU")
    axes.set_title(f"{gpu}, torch {results['machine']['packages'].get('torch')}, revision {results['revision']}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


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
    given = parser.parse_args(arguments)
    results = merge([json.loads(path.read_text()) for path in given.files])
    show_table(results)
    if given.chart:
        chart(results, given.chart)
    return 0


if __name__ == "__main__":
    sys.exit(main())
