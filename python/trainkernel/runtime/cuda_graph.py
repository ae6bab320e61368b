"""Launches recorded as a CUDA graph.

The graph is made by capturing the very launches of a step on a stream of its own, so that its nodes have the attributes
of these: cluster, cooperative, and the overlap of one launch with the end of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from trainkernel.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from trainkernel.runtime.driver import Driver

#: Launches a step on the addresses of all its tensors and on a stream.
Launch = Callable[[Sequence[int], int], None]


class CudaRecording:
    """See :class:`~trainkernel.runtime.program.Recording`.

    Args:
        driver: the driver.
        context: the context of the step.
        launch: of the step.
        launches: the addresses of each launch.
        take_workspace: takes the workspace of the launches on a captured stream, given the stream and the capture.
        free_workspace: frees it, after the work that uses it.

    Raises:
        DeviceError: the device has no graph, or no memory for its workspace.
    """

    def __init__(
        self,
        driver: Driver,
        context: int,
        launch: Launch,
        launches: Sequence[Sequence[int]],
        take_workspace: Callable[[int, int], int | None],
        free_workspace: Callable[[int], None],
    ) -> None:
        self._driver, self._context = driver, context
        self._launch = launch
        self._launches = [tuple(pointers) for pointers in launches]
        self._free_workspace = free_workspace
        self._workspace: int | None = None
        self._graph: int | None = None
        # A graph must not be launched by two threads at once.
        self._lock = threading.Lock()
        with driver.context(context):
            stream = driver.create_stream()
            try:
                self._record(stream, take_workspace)
            except BaseException:
                self.close()
                raise
            finally:
                driver.destroy_stream(stream)

    def _record(self, stream: int, take_workspace: Callable[[int, int], int | None]) -> None:
        driver = self._driver
        driver.begin_capture(stream)
        capture = driver.capture(stream)
        try:
            for pointers in self._launches:
                self._launch(pointers, stream)
        except BaseException:
            # What failed may have ended the capture, too.
            with suppress(DeviceError):
                driver.destroy_graph(driver.end_capture(stream))
            raise
        finally:
            self._workspace = take_workspace(stream, capture)
        recorded = driver.end_capture(stream)
        try:
            self._graph = driver.instantiate_graph(recorded)
        finally:
            driver.destroy_graph(recorded)
        # So that the first replay is as short as the others.
        driver.upload_graph(self._graph, stream)
        driver.synchronize(stream)

    def replay(self, stream: int | None) -> None:
        """Launch the graph. A stream that is being captured gets the launches themselves, with the capture's workspace.

        So the larger graph needs nothing of this one, and both may be replayed at the same time.

        Raises:
            ArgumentError: the step is closed.
            DeviceError: the launch failed.
        """
        driver, handle = self._driver, stream or 0
        with self._lock:
            if self._graph is None:
                raise ArgumentError("the step of the captured program is closed", expected="a loaded one")
            with driver.context(self._context):
                if not driver.capture(handle):
                    driver.launch_graph(self._graph, handle)
                    return
        for pointers in self._launches:
            self._launch(pointers, handle)

    def close(self) -> None:
        """Free the graph and its workspace, when the replays under way are done."""
        with self._lock:
            graph, self._graph = self._graph, None
            workspace, self._workspace = self._workspace, None
            if graph is None and workspace is None:
                return
            with self._driver.context(self._context):
                if workspace is not None:
                    self._free_workspace(workspace)
                if graph is not None:
                    self._driver.destroy_graph_exec(graph)
