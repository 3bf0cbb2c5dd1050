"""Opens a model in a process of its own, so that one that onnxruntime dies of ends that process and not the build.

``python -m server_bridge.bundles.opening FILE``
"""

import signal
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime as ort

from edge_agent.errors import DataError
from edge_agent.model.session import RUNTIME_ERRORS

WAIT_S = 120


def refuse_deadly(file: Path, model: onnx.ModelProto) -> None:
    """Refuse a file that kills the process that opens it, as some loops do with onnxruntime 1.32.

    Only models with branches or loops are tried, since the process costs some tenths of a second. What onnxruntime
    refuses in an orderly way is left to the build, which names it.

    Args:
        file: of the model.
        model: what it holds.

    Raises:
        DataError: the process died, or did not come to its end in two minutes; operators and way out are named.
    """
    inside = sorted({node.op_type for node in model.graph.node if _has_graph(node)})
    if not inside:
        return
    command = [sys.executable, "-m", __spec__.name, str(file)]
    way_out = "export it optimised (torch: without optimize=False), or without these operators"
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{file}: onnxruntime {ort.__version__} does not open it in {WAIT_S} s", way_out) from error
    if ended.returncode < 0:
        raise DataError(
            f"{file}: onnxruntime {ort.__version__} dies of it ({_signal(-ended.returncode)});"
            f" it has {', '.join(inside)}",
            way_out,
        )


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or len(attribute.graphs) for attribute in node.attribute)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main(arguments: list[str]) -> int:
    """Open the file; 1: it is refused."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(arguments[0], options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except RUNTIME_ERRORS:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
