"""The part of the driver API that is about CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainkernel.errors import DeviceError
    from trainkernel.runtime.direct import DirectFunctions


class GraphFunctions:
    """Graphs, for :class:`trainkernel.runtime.driver.Driver`; handles are ints, and a context must be current."""

    _cu: Any
    _direct: DirectFunctions

    def _call(self, name: str, *args: Any) -> Any:
        raise NotImplementedError

    def error(self, name: str, status: int) -> DeviceError:
        """The error of a driver function that was called without the bindings."""
        raise NotImplementedError

    def create_stream(self) -> int:
        """A stream that waits for no other one."""
        return int(self._call("cuStreamCreate", int(self._cu.CUstream_flags.CU_STREAM_NON_BLOCKING)))

    def destroy_stream(self, stream: int) -> None:
        """End a stream."""
        self._call("cuStreamDestroy", self._cu.CUstream(stream))

    def begin_capture(self, stream: int) -> None:
        """Let a stream record what is launched on it. Other threads may use the device as they like meanwhile."""
        mode = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._cu.CUstream(stream), mode)

    def end_capture(self, stream: int) -> int:
        """The graph of what was recorded."""
        return int(self._call("cuStreamEndCapture", self._cu.CUstream(stream)))

    def instantiate_graph(self, graph: int) -> int:
        """A graph that can be launched."""
        return int(self._call("cuGraphInstantiate", self._cu.CUgraph(graph), 0))

    def upload_graph(self, graph: int, stream: int) -> None:
        """Bring a launchable graph to the device ahead of its first launch."""
        self._call("cuGraphUpload", self._cu.CUgraphExec(graph), self._cu.CUstream(stream))

    def launch_graph(self, graph: int, stream: int) -> None:
        """Launch a launchable graph."""
        status = self._direct.launch_graph(graph, stream)
        if status:
            raise self.error("cuGraphLaunch", status)

    def destroy_graph(self, graph: int) -> None:
        """Free a recorded graph."""
        self._call("cuGraphDestroy", self._cu.CUgraph(graph))

    def destroy_graph_exec(self, graph: int) -> None:
        """Free a launchable graph, once it does not run any more."""
        self._call("cuGraphExecDestroy", self._cu.CUgraphExec(graph))
