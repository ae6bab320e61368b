"""Native calls without a step: of a tree of tensors, with Python in the place of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from runtime_support import manifest, tensor
from trainkernel.manifest import Manifest
from trainkernel.pytree import TreeSpec, flatten, namedtuple_types
from trainkernel.runtime.frameworks.torch_tensors import TorchFramework
from trainkernel.runtime.native import NativeCall, call_library
from trainkernel.runtime.tensors import Device


class TreeCall:
    """A step that returns its arguments as its new state, and a loss: ``call(*args)`` gives ``(loss, args)``.

    Args:
        args: an example; its tensors are scalars of float32.
        result: of another tree in the place of the new state.
        updates: the argument that each leaf of that tree is the next value of, or None.

    Attributes:
        spec: the structure of the arguments.
        types: the namedtuple types in it.
        launch: what a launch does; nothing by default.
        donate: whether a call updates its arguments in place.
    """

    def __init__(
        self, args: tuple[Any, ...], result: TreeSpec | None = None, updates: Sequence[int | None] = ()
    ) -> None:
        leaves, self.spec = flatten(args)
        self.types = namedtuple_types(args)
        self.launch: Callable[[], object] = lambda: None
        self.donate = True
        if result is None:
            result, updates = self.spec, range(len(leaves))
        made = manifest(
            inputs=[tensor(f"a{i}", "state", (), "float32") for i in range(len(leaves))],
            outputs=[
                tensor("loss", "loss", (), "float32", updates=None),
                *(tensor(f"b{i}", "new_state", (), "float32", updates=source) for i, source in enumerate(updates)),
            ],
            in_tree=self.spec.to_json(),
            out_tree={"kind": "tuple", "children": [{"kind": "leaf"}, result.to_json()]},
            parameters=[f"p{i}" for i in range(len(args))],
        )
        home = TorchFramework(torch)
        self.native = NativeCall(
            call_library(), Manifest.from_json(made), Device("cpu"), 1, home=home, types=self.types
        )
        assert self.native.learn([*leaves, *(torch.zeros(()) for _ in range(len(updates) + 1))])

    def __call__(self, *args: Any) -> Any:
        call = self.native.donating if self.donate else self.native.functional
        return call(lambda status, place: self.launch(), args)
