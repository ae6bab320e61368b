"""Trains a digit classifier online: one compiled training step per small batch, beside the same step in eager PyTorch.

The data are scikit-learn's bundled handwritten digits (1797 images of 8x8 pixels). Both learners see the same batches
in the same order from the same initial weights. The script prints their progress, their accuracy on held-out images and
the times of their steps, of which the first of ours loads the code, and writes a plot of the loss.

Run it as ``python examples/online_training.py``; ``--help`` lists the options.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import matplotlib
import matplotlib.backend_bases
import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.func import grad_and_value

import trainkernel

State = dict[str, torch.Tensor]
LEARNING_RATE = 0.1
CLASSES = 10


def forward(state: State, images: torch.Tensor) -> torch.Tensor:
    """Scores of each class; ``images`` is (batch, 64), the result (batch, 10), both float32."""
    hidden = torch.relu(images @ state["w1"] + state["b1"])
    return hidden @ state["w2"] + state["b2"]


def step(state: State, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, State]:
    """One step of gradient descent on the squared error; ``targets`` is one-hot, (batch, 10)."""

    def loss_of(state: State) -> torch.Tensor:
        return ((forward(state, images) - targets) ** 2).sum(1).mean()

    gradients, loss = grad_and_value(loss_of)(state)
    return loss, {name: value - LEARNING_RATE * gradients[name] for name, value in state.items()}


def initial_state(hidden: int, device: str) -> State:
    """Random weights with the variance of their fan-in, zero biases."""
    generator = torch.Generator().manual_seed(0)
    w1 = torch.randn(64, hidden, generator=generator) / 8
    w2 = torch.randn(hidden, CLASSES, generator=generator) / hidden**0.5
    state = {"w1": w1, "b1": torch.zeros(hidden), "w2": w2, "b2": torch.zeros(CLASSES)}
    return {name: value.to(device) for name, value in state.items()}


@dataclass
class Learner:
    """A training step and what became of it."""

    name: str
    step: Any
    state: State
    losses: list[torch.Tensor] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def learn(self, images: torch.Tensor, targets: torch.Tensor) -> None:
        """Takes one step and records its loss and its time."""
        synchronize(images)
        start = time.perf_counter()
        loss, self.state = self.step(self.state, images, targets)
        synchronize(images)
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss)

    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Share of ``images`` whose highest score is at their label."""
        return float((forward(self.state, images).argmax(1) == labels).float().mean())


def synchronize(like: torch.Tensor) -> None:
    """Waits for the device of ``like``, so that a host clock measures its work."""
    if like.is_cuda:
        torch.cuda.synchronize()


def load_data(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pixels scaled to [0, 1] and labels, split into training and held-out parts."""
    digits = load_digits()
    split = train_test_split(digits.data / 16, digits.target, test_size=0.2, random_state=0, stratify=digits.target)
    train_x, test_x, train_y, test_y = split
    pixels = [torch.tensor(x, dtype=torch.float32, device=device) for x in (train_x, test_x)]
    labels = [torch.tensor(y, device=device) for y in (train_y, test_y)]
    return pixels[0], pixels[1], labels[0], labels[1]


def train(learners: list[Learner], images: torch.Tensor, labels: torch.Tensor, epochs: int, batch: int) -> None:
    """Streams the data in a fresh order each epoch, each batch to every learner."""
    generator = torch.Generator().manual_seed(1)
    targets = torch.nn.functional.one_hot(labels, CLASSES).float()
    batches = len(images) // batch
    with Progress(console=Console(stderr=True)) as progress, torch.no_grad():
        task = progress.add_task("training", total=epochs * batches)
        for _ in range(epochs):
            order = torch.randperm(len(images), generator=generator).to(images.device)
            for index in order[: batches * batch].split(batch):
                for learner in learners:
                    learner.learn(images[index], targets[index])
                progress.advance(task)
            loss = float(torch.stack(learners[0].losses[-batches:]).mean())
            progress.update(task, description=f"training, loss {loss:.3f}")


def show(learners: list[Learner], images: torch.Tensor, labels: torch.Tensor, console: Console) -> None:
    """Prints how well and how fast each learner learned. Few slow steps move the mean, but not the median."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for learner in learners:
        table.add_column(learner.name, justify="right")
    table.add_row("held-out accuracy", *(f"{learner.accuracy(images, labels):.1%}" for learner in learners))
    rows: dict[str, Callable[[list[float]], Any]] = {
        "median step": np.median,
        "mean step": np.mean,
        "slowest of 100": lambda seconds: np.percentile(seconds, 99),
        "slowest step": np.max,
    }
    for name, of in rows.items():
        table.add_row(name, *(f"{of(learner.seconds) * 1e6:,.0f} µs" for learner in learners))
    table.add_row("all steps", *(f"{sum(learner.seconds):.2f} s" for learner in learners))
    console.print(table)


def plot(learners: list[Learner], path: Path) -> None:
    """Writes the loss of each learner over the steps, smoothed over 20 of them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for learner, style in zip(learners, ("-", "--"), strict=True):
        losses = torch.stack(learner.losses).cpu().numpy()
        window = min(20, len(losses))
        axes.plot(np.convolve(losses, np.ones(window) / window, "valid"), style, label=learner.name)
    axes.set(xlabel="step", ylabel="squared error (mean of 20 steps)", yscale="log", title="Online training on digits")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def check_device(context: click.Context, option: click.Parameter, device: str | None) -> str:
    """The device to train on; refuses a GPU that PyTorch does not have."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise click.BadParameter("PyTorch finds no GPU here, expected cpu")
    return device or ("cuda" if available else "cpu")


def check_plot(context: click.Context, option: click.Parameter, path: Path) -> Path:
    """Refuses, before the training, what the plot could not be written to."""
    matplotlib.use("Agg")
    formats = matplotlib.backend_bases.FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise click.BadParameter(f"{path} is no image, expected a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise click.BadParameter(f"the folder {path.parent} does not exist")
    return path


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--epochs", type=click.IntRange(min=1), default=20, show_default=True, help="Passes over the images.")
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Images per step.")
@click.option("--hidden", type=click.IntRange(min=1), default=128, show_default=True, help="Width of the hidden layer.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), callback=check_device, help="[default: cuda where there is one]"
)
@click.option(
    "--plot",
    "plot_path",
    default="online_training.png",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_plot,
    help="Image of the loss over the steps.",
)
def main(epochs: int, batch: int, hidden: int, device: str, plot_path: Path) -> None:
    """Trains a digit classifier with compiled steps and with eager PyTorch, and compares them."""
    train_x, test_x, train_y, test_y = load_data(device)
    if batch > len(train_x):
        raise click.BadParameter(f"{batch} is more than the {len(train_x)} training images", param_hint="--batch")
    state = initial_state(hidden, device)
    example = (state, train_x[:batch], torch.zeros(batch, CLASSES, device=device))
    try:
        compiled = trainkernel.compile_training(step, example)
    except trainkernel.TrainKernelError as error:
        raise click.ClickException(str(error)) from error
    console = Console()
    seconds = sum(compiled.report().seconds.values())
    console.print(f"compiled for {compiled.manifest.target.kind} in {seconds:.1f} s")
    learners = [Learner("TrainKernel", compiled, state), Learner("eager PyTorch", step, dict(state))]
    train(learners, train_x, train_y, epochs, batch)
    console.print(f"{epochs} epochs of {len(train_x) // batch} steps, {batch} images each, on {device}")
    show(learners, test_x, test_y, console)
    plot(learners, plot_path)
    console.print(f"wrote {plot_path}", soft_wrap=True)


if __name__ == "__main__":
    main()
