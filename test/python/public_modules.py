"""Training code as people write it for PyTorch, in small: modules, losses, optimizers and synthetic batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical

from module_support import Batch, LossFunction, OptimizerOf, integers, randn
from trainkernel import random


@dataclass(frozen=True)
class Program:
    """A training program.

    Attributes:
        module: makes the module.
        optimizer: makes its optimizer.
        loss_fn: its loss.
        batch: makes the batch of a step.
    """

    module: Callable[[], Any]
    optimizer: OptimizerOf
    loss_fn: LossFunction
    batch: Callable[[int], Batch]


def cross_entropy(model: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(model(x), y)


class Classifier(nn.Module):
    """The multilayer perceptron of the MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x: Any) -> Any:
        return F.log_softmax(self.layers(x), dim=1)


def negative_log_likelihood(model: Any, x: Any, y: Any) -> Any:
    return F.nll_loss(model(x), y)


class Autoencoder(nn.Module):
    """The variational autoencoder of the VAE example, with random numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(48, 20), nn.Linear(20, 5), nn.Linear(20, 5)
        self.fc3, self.fc4 = nn.Linear(5, 20), nn.Linear(20, 48)
        self.random = random.Generator(seed=3)

    def forward(self, x: Any) -> Any:
        hidden = F.relu(self.fc1(x))
        mean, log_variance = self.fc21(hidden), self.fc22(hidden)
        z = mean + torch.exp(0.5 * log_variance) * self.random.normal(mean.shape).to(x.dtype)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mean, log_variance


def evidence(model: Any, x: Any) -> Any:
    again, mean, log_variance = model(x)
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return F.binary_cross_entropy(again, x, reduction="sum") + divergence


class Policy(nn.Module):
    """The policy of the REINFORCE example."""

    def __init__(self) -> None:
        super().__init__()
        self.affine1, self.affine2 = nn.Linear(4, 24), nn.Linear(24, 2)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)


def reinforce(policy: Any, states: Any, actions: Any, rewards: Any) -> Any:
    """The update at the end of an episode: returns discounted, then normalised."""
    discounts = 0.99 ** torch.arange(len(rewards), dtype=rewards.dtype)
    returns = torch.flip(torch.cumsum(torch.flip(rewards * discounts, [0]), 0), [0]) / discounts
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    return (-Categorical(policy(states)).log_prob(actions) * returns).sum()


class ActorCritic(nn.Module):
    """Policy and value with a common trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.action, self.value = nn.Linear(4, 24), nn.Linear(24, 3), nn.Linear(24, 1)

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.trunk(x))
        return self.action(hidden), self.value(hidden).squeeze(-1)


def advantage(model: Any, states: Any, actions: Any, returns: Any) -> Any:
    logits, values = model(states)
    policy = Categorical(logits=logits)
    gained = (returns - values).detach()
    loss = -(policy.log_prob(actions) * gained).mean() + F.smooth_l1_loss(values, returns)
    return loss - 0.01 * policy.entropy().mean()


class WordModel(nn.Module):
    """The recurrent model of the word language model example; it gets and returns its hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(19, 10), nn.LSTM(10, 12), nn.Linear(12, 19)

    def forward(self, words: Any, hidden: Any) -> Any:
        output, hidden = self.rnn(self.encoder(words), hidden)
        return F.log_softmax(self.decoder(output).view(-1, 19), dim=1), hidden


def next_words(model: Any, words: Any, following: Any, hidden: Any) -> Any:
    scores, hidden = model(words, hidden)
    return F.nll_loss(scores, following.reshape(-1)), hidden


class CellModel(nn.Module):
    """The same, of cells in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.cell, self.decoder = nn.Embedding(11, 8), nn.LSTMCell(8, 9), nn.Linear(9, 11)

    def forward(self, words: Any) -> Any:
        embedded = self.encoder(words)
        hidden = embedded.new_zeros(words.shape[1], 9), embedded.new_zeros(words.shape[1], 9)
        scores = []
        for x in embedded:
            hidden = self.cell(x, hidden)
            scores.append(self.decoder(hidden[0]))
        return torch.stack(scores).flatten(0, 1)


class Recommender(nn.Module):
    """Matrix factorisation with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(13, 6), nn.Embedding(17, 6)
        self.user_bias, self.item_bias = nn.Embedding(13, 1), nn.Embedding(17, 1)

    def forward(self, user: Any, item: Any) -> Any:
        product = (self.users(user) * self.items(item)).sum(1)
        return product + self.user_bias(user).squeeze(1) + self.item_bias(item).squeeze(1)


def rating_error(model: Any, user: Any, item: Any, rating: Any) -> Any:
    return F.mse_loss(model(user, item), rating)


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of low rank beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(20, 12).requires_grad_(False)
        self.down, self.up = nn.Linear(20, 3, bias=False), nn.Linear(3, 12, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Any) -> Any:
        return self.base(x) + 2.0 * self.up(self.down(x))


def convolutional() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 5),
    )


def trained_only(model: Any) -> list[Any]:
    return [p for p in model.parameters() if p.requires_grad]


PROGRAMS = {
    "mnist": Program(
        Classifier,
        lambda m: optim.SGD(m.parameters(), lr=0.05, momentum=0.5),
        negative_log_likelihood,
        lambda i: (randn(8, 1, 28, 28, seed=i), integers(10, 8, seed=i)),
    ),
    "vae": Program(
        Autoencoder,
        lambda m: optim.Adam(m.parameters(), lr=1e-3),
        evidence,
        lambda i: (randn(6, 48, seed=i).sigmoid(),),
    ),
    "reinforce": Program(
        Policy,
        lambda m: optim.Adam(m.parameters(), lr=1e-2),
        reinforce,
        lambda i: (randn(12, 4, seed=i), integers(2, 12, seed=i), randn(12, seed=i)),
    ),
    "actor_critic": Program(
        ActorCritic,
        lambda m: optim.Adam(m.parameters(), lr=3e-2),
        advantage,
        lambda i: (randn(10, 4, seed=i), integers(3, 10, seed=i), randn(10, seed=i)),
    ),
    "words_cell": Program(
        CellModel,
        lambda m: optim.AdamW(m.parameters(), lr=1e-2),
        lambda m, words, following: F.cross_entropy(m(words), following.reshape(-1)),
        lambda i: (integers(11, 3, 3, seed=i), integers(11, 3, 3, seed=i + 1)),
    ),
    "recommender": Program(
        Recommender,
        lambda m: optim.Adam(m.parameters(), lr=1e-2, weight_decay=1e-4),
        rating_error,
        lambda i: (integers(13, 16, seed=i), integers(17, 16, seed=i), randn(16, seed=i)),
    ),
    "lora": Program(
        Adapted,
        lambda m: optim.AdamW(trained_only(m), lr=1e-2),
        lambda m, x, y: F.mse_loss(m(x), y),
        lambda i: (randn(8, 20, seed=i), randn(8, 12, seed=i)),
    ),
    "convolutional": Program(
        convolutional,
        lambda m: optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4),
        cross_entropy,
        lambda i: (randn(4, 1, 8, 8, seed=i), integers(5, 4, seed=i)),
    ),
}
