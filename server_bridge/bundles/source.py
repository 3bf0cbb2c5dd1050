"""The model that a bundle is made from, and the form in which it is served."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no stubs

from edge_agent.errors import DataError
from edge_agent.wire.manifest import LossName
from server_bridge.bundles.gradients.graph import read_by
from server_bridge.bundles.opening import refuse_deadly

MODEL_CAP_BYTES = 1024 * 1024 * 1024
_AN_ONNX_FILE = "give an .onnx file: the exporter's, or a bundle's infer.onnx"
_EXTERNAL = "put that file beside it, or export all into one (torch: external_data=False)"
_LOGITS_BY: Mapping[tuple[str, str], str] = MappingProxyType(
    {("cross-entropy", "Softmax"): "LogSoftmax", ("binary-cross-entropy", "Sigmoid"): "Identity"}
)
"""What takes the place of a last operator, by the loss."""
_SHAPING = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that leave values as they are."""


def read_model(model: onnx.ModelProto | Path) -> onnx.ModelProto:
    """A model as it is, or from its file.

    Raises:
        DataError: the file is absent, too large, cannot be read, is no ONNX file, lacks the file of its weights, or
            kills the process that opens it.
    """
    if isinstance(model, onnx.ModelProto):
        return model
    if not model.is_file():
        found = "is a directory" if model.is_dir() else "does not exist"
        raise DataError(f"{model} {found}", _AN_ONNX_FILE)
    try:
        if model.stat().st_size > MODEL_CAP_BYTES:
            raise DataError(f"{model} has {model.stat().st_size} bytes, the cap is {MODEL_CAP_BYTES}")
        read = onnx.load(model)
    except OSError as error:
        raise DataError(f"{model} cannot be read: {error}") from error
    except onnx.checker.ValidationError as error:
        raise DataError(f"{model} keeps its weights in another file: {error}", _EXTERNAL) from error
    except (DecodeError, ValueError) as error:
        raise DataError(f"{model} is not an ONNX file: {error}", _AN_ONNX_FILE) from error
    refuse_deadly(model, read)
    return read


def served_model(model: onnx.ModelProto, loss: LossName) -> onnx.ModelProto:
    """A checked model whose first output is logits or a value: a last Softmax becomes LogSoftmax, a Sigmoid nothing.

    What only gives the probabilities another shape may follow.

    Raises:
        DataError: the probabilities are used elsewhere in the graph, too.
    """
    value = model.graph.output[0].name
    makers = {name: node for node in model.graph.node for name in node.output}
    seen = [value]
    while value in makers and makers[value].op_type in _SHAPING:
        value = makers[value].input[0]
        seen.append(value)
    last = makers.get(value)
    if last is None or (loss, last.op_type) not in _LOGITS_BY:
        return model
    outputs = {other.name for other in model.graph.output[1:]}
    for name in seen:
        readers = sum(name in read_by(node) for node in model.graph.node)
        if readers > (name != seen[0]) or name in outputs:
            raise DataError(f"the probabilities {name!r} are used inside the graph", "make the logits the first output")
    last.op_type = _LOGITS_BY[loss, last.op_type]
    return model
