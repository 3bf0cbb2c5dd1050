"""What a model must be before it becomes a bundle: each refusal names the thing and the way out."""

import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np
import onnx
from onnx import TensorProto, inliner, numpy_helper, version_converter

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.graph import needed_nodes, read_by
from server_bridge.bundles.normal_form import normal_form
from server_bridge.bundles.parameters import is_mask, weight_names

OPSET_MIN, OPSET_MAX = 13, 23
TRAINING_OPSET = 17
"""The least opset of a training graph: ScatterElements adds since 16, and 17 runs on onnxruntime 1.20."""
IR_VERSION_MAX = 10
"""The newest file format that onnxruntime 1.20 reads."""
NAME_LENGTH_MAX = 128
_NOT_WRITTEN = ("Cc", "Cs")
"""Unicode's control characters, and the surrogates by which Python shows bytes that are not UTF-8."""
DATA_COLUMNS = ("label", "group", "holdout", "delay", "time", "id", "task")
"""Names of the data files that no graph input may have."""

Message = TypeVar("Message", onnx.ModelProto, onnx.NodeProto, onnx.TensorProto, onnx.ValueInfoProto)
_FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def checked_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in the form that the rest of the build relies on.

    Functions are inlined, initialisers are no graph inputs, nothing is unused, initialisers are in the file, and
    exporters' ways are made one (see `normal_form`).

    Raises:
        DataError: not valid ONNX, opset outside 13-23, a fixed batch axis, a weight that is not finite, or a
            name that cannot be kept.
    """
    model = inliner.inline_local_functions(model) if model.functions else _copy(model)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise DataError(
            f"the model is not valid ONNX: {str(error).splitlines()[0]}", "export it again; `onnx.checker` says more"
        ) from error
    _refuse_opset(opset(model))
    normal_form(model)
    initialisers = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initialisers]
    _keep(model, "input", inputs)
    _drop_unused(model)
    model.ir_version = min(model.ir_version, IR_VERSION_MAX)
    for value in (*model.graph.input, *model.graph.output):
        _refuse_value_name(value.name)
        _free_batch(value)
    for tensor in model.graph.initializer:
        _refuse_values(tensor)
    return model


def opset(model: onnx.ModelProto) -> int:
    """The version of the standard operator set that a model is written in; 0 if it imports none."""
    versions: list[int] = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return versions[0] if versions else 0


def for_training(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model at the opset that training graphs need.

    Raises:
        DataError: onnx cannot convert it.
    """
    if opset(model) >= TRAINING_OPSET:
        return model
    try:
        return version_converter.convert_version(model, TRAINING_OPSET)
    except (RuntimeError, version_converter.ConvertError) as error:
        raise DataError(
            f"opset {opset(model)} cannot be converted to {TRAINING_OPSET} for training: {str(error).splitlines()[0]}",
            f"export the model at opset {TRAINING_OPSET} or later",
        ) from error


def trainable_names(model: onnx.ModelProto, patterns: Sequence[str]) -> list[str]:
    """The initialisers that patterns choose, in the graph's order.

    A pattern chooses among weights (see `weight_names`); constants beside them are chosen by their own names only.

    Args:
        model: a checked model.
        patterns: shell patterns; one that begins with ``!`` excludes.

    Raises:
        DataError: a pattern matches no float32 initialiser, or an excluding one nothing, or none is left.
    """
    floats = [tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    others = [tensor.name for tensor in model.graph.initializer if tensor.name not in floats]
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        if bare in floats or any(fnmatchcase(name, bare) for name in floats):
            continue
        if bare in others:
            raise DataError(f"trainable tensor {bare!r} is not float32", "only float32 tensors are trained")
        raise DataError(f"no float32 initialiser matches {bare!r}", _there_are(model, floats))
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    barred = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    weights = set(weight_names(model)).union(wanted)
    chosen = [name for name in floats if name in weights and _matches(name, wanted) and not _matches(name, barred)]
    if not chosen:
        raise DataError("no tensor is left to train", "give --trainable a pattern of initialiser names")
    for name in chosen:
        _refuse_value_name(name)
    return chosen


def _there_are(model: onnx.ModelProto, floats: Sequence[str]) -> str:
    if floats:
        return f"there are: {', '.join(floats)}"
    inside = sorted({node.op_type for node in model.graph.node if node.domain == "ai.onnx.ml"})
    if inside:
        return f"there are none: {', '.join(inside)} keep their numbers in attributes; an MLP's stand in tensors"
    return "there are none"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_opset(version: int) -> None:
    if not OPSET_MIN <= version <= OPSET_MAX:
        raise DataError(
            f"the model's opset is {version}; {OPSET_MIN} to {OPSET_MAX} are supported",
            f"export it at opset {TRAINING_OPSET}, or try onnx.version_converter",
        )


def refuse_name(name: str) -> None:
    """Refuse what a manifest cannot hold as a name.

    Raises:
        DataError: empty, too long, or with a character that cannot be written.
    """
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        shown = name[:NAME_LENGTH_MAX]
        raise DataError(f"name {shown!r} has {len(name)} characters, 1 to {NAME_LENGTH_MAX} are possible", "rename it")
    if any(unicodedata.category(sign) in _NOT_WRITTEN for sign in name):
        raise DataError(f"name {name!r} holds a control character, or bytes that are not UTF-8", "rename it")


def _refuse_value_name(name: str) -> None:
    refuse_name(name)
    if name in DATA_COLUMNS:
        raise DataError(f"{name!r} has a meaning of its own in data files", "rename the model's value")


def _free_batch(value: onnx.ValueInfoProto) -> None:
    """Refuse a fixed first dimension, and name the free ones that have no name."""
    dimensions = value.type.tensor_type.shape.dim
    if not dimensions:
        raise DataError(f"{value.name!r} has no batch axis", "its first dimension must be the batch")
    if dimensions[0].HasField("dim_value"):
        raise DataError(
            f"{value.name!r} has a fixed batch axis of {dimensions[0].dim_value}",
            "export the model with a free first dimension (dynamic_axes or dynamic_shapes)",
        )
    for position, dimension in enumerate(dimensions):
        if not dimension.HasField("dim_value") and not dimension.dim_param:
            dimension.dim_param = "batch" if position == 0 else f"{value.name}.{position}"[:NAME_LENGTH_MAX]


def _refuse_values(tensor: onnx.TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise DataError(
            f"initialiser {tensor.name!r} lies outside the file", "give the path of the model, not its bytes"
        )
    if tensor.data_type not in _FLOAT_TYPES or is_mask(tensor):
        return
    if not np.isfinite(numpy_helper.to_array(tensor)).all():
        raise DataError(
            f"initialiser {tensor.name!r} is not finite", "the model's training went wrong: NaN or infinity"
        )


def _drop_unused(model: onnx.ModelProto) -> None:
    graph = model.graph
    outputs = {value.name for value in graph.output}
    nodes = needed_nodes(graph.node, outputs)
    read = outputs.union(*(read_by(node) for node in nodes))
    initialisers = [tensor for tensor in graph.initializer if tensor.name in read]
    _keep(model, "node", nodes)
    _keep(model, "initializer", initialisers)


def _keep(model: onnx.ModelProto, field: str, kept: Sequence[Message]) -> None:
    """Replace a repeated field of the graph by some of its own messages."""
    copies = [_copy(message) for message in kept]
    model.graph.ClearField(field)
    getattr(model.graph, field).extend(copies)


def _copy(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied
