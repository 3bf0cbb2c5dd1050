"""Opens a model in a process of its own, so that one that onnxruntime dies of ends that process and not the build.

``python -m server_bridge.bundles.opening``, the model on standard input.
"""

import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import onnx

from edge_agent.errors import DataError
from edge_agent.model.session import Session

WAIT_S = 120


def refuse_deadly(file: Path, model: onnx.ModelProto) -> None:
    """Refuse a file that kills the process that opens it, as some loops do with onnxruntime 1.32.

    Only models with branches or loops are tried, since the process costs some tenths of a second. What onnxruntime
    refuses in an orderly way is left to the build, which names it.

    Args:
        file: of the model, for the error.
        model: what it holds.

    Raises:
        DataError: the process died, or did not come to its end in two minutes; operators and way out are named.
    """
    inside = sorted({node.op_type for node in model.graph.node if _has_graph(node)})
    if not inside:
        return
    command = [sys.executable, "-m", "server_bridge.bundles.opening"]
    way_out = "export it optimised (torch: without optimize=False), or without these operators"
    runtime = f"onnxruntime {version('onnxruntime')}"
    try:
        ended = subprocess.run(
            command, input=model.SerializeToString(), capture_output=True, timeout=WAIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{file}: {runtime} does not open it in {WAIT_S} s", way_out) from error
    if ended.returncode < 0:
        died = f"{runtime} dies of it ({_signal(-ended.returncode)})"
        raise DataError(f"{file}: {died}; it has {', '.join(inside)}", way_out)


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or len(attribute.graphs) for attribute in node.attribute)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> int:
    """Open the model on standard input; 1: it is refused."""
    try:
        Session("the model", sys.stdin.buffer.read(), {}, threads=1)
    except DataError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
