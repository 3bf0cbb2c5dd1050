"""The model that a bundle is made from, and the form in which it is served."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no stubs

from edge_agent.errors import DataError
from edge_agent.wire.manifest import LossName

MODEL_CAP_BYTES = 1024 * 1024 * 1024
_LOGITS_BY: Mapping[tuple[str, str], str] = MappingProxyType(
    {("cross-entropy", "Softmax"): "LogSoftmax", ("binary-cross-entropy", "Sigmoid"): "Identity"}
)
"""What takes the place of a last operator, by the loss."""


def read_model(model: onnx.ModelProto | Path) -> onnx.ModelProto:
    """A model as it is, or from its file.

    Raises:
        DataError: the file is too large, cannot be read, or is no ONNX file.
    """
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        if model.stat().st_size > MODEL_CAP_BYTES:
            raise DataError(f"{model} has {model.stat().st_size} bytes, the cap is {MODEL_CAP_BYTES}")
        return onnx.load(model)
    except OSError as error:
        raise DataError(f"{model} cannot be read: {error}") from error
    except (DecodeError, ValueError) as error:
        raise DataError(f"{model} is not an ONNX file: {error}") from error


def served_model(model: onnx.ModelProto, loss: LossName) -> onnx.ModelProto:
    """A checked model whose first output is logits or a value: a last Softmax becomes LogSoftmax, a Sigmoid nothing."""
    output = model.graph.output[0].name
    nodes: Sequence[onnx.NodeProto] = model.graph.node
    last = next((node for node in nodes if output in node.output), None)
    if last is not None and (loss, last.op_type) in _LOGITS_BY:
        if any(output in node.input for node in nodes):
            raise DataError(
                f"the probabilities {output!r} are used inside the graph", "make the logits the first output"
            )
        last.op_type = _LOGITS_BY[loss, last.op_type]
    return model
