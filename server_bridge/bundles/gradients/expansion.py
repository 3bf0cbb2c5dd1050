"""Operators that ONNX defines by others, written out where a gradient must pass and no rule is there."""

from collections.abc import Collection

import onnx
from onnx import defs, helper, inliner, shape_inference

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.reverse import depending
from server_bridge.bundles.gradients.rules import FLAT, REFUSED, RULES

_ROUNDS_MAX = 4
"""Definitions by operators that are defined by others in turn."""


def expanded(model: onnx.ModelProto, trainable: Collection[str]) -> onnx.ModelProto:
    """The model with such operators written out.

    Attention, Mish, Celu, RMSNormalization and others need no rule of their own; ONNX itself says what they are.

    Args:
        model: a checked model.
        trainable: names of initialisers; what lies below all of them stays as it is.

    Raises:
        DataError: onnx cannot write an operator out.
    """
    for _ in range(_ROUNDS_MAX):
        names = _definable(model, trainable)
        if not names:
            break
        model = _written_out(model, names)
    return model


def _written_out(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    typed = shape_inference.infer_shapes(model)
    _name_defaults(typed, names)
    described = {value.name for value in typed.graph.value_info}
    for tensor in model.graph.initializer:
        if tensor.name not in described:
            typed.graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        inlined = inliner.inline_selected_functions(typed, [("", name) for name in names], inline_schema_functions=True)
    except RuntimeError as error:
        raise DataError(
            f"operators {', '.join(names)} cannot be written out by others: {str(error).splitlines()[0]}",
            "train only tensors above them, or export the model at another opset",
        ) from error
    del inlined.graph.value_info[:]
    return inlined


def _name_defaults(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Give attributes their defaults: the inliner leaves out what a node does not say."""
    for node in model.graph.node:
        if node.op_type in names and node.domain in ("", "ai.onnx"):
            given = {attribute.name for attribute in node.attribute}
            for name, attribute in defs.get_schema(node.op_type, _opset(model)).attributes.items():
                if name not in given and attribute.default_value.name:
                    node.attribute.append(attribute.default_value)


def _opset(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _definable(model: onnx.ModelProto, trainable: Collection[str]) -> list[str]:
    """Operators without a rule that a trainable tensor runs through and that have a definition."""
    depends = depending(Forward(model, {}, {}), model.graph.node, trainable)
    names = set()
    for node in model.graph.node:
        if depends.intersection(node.input) and is_definable(node, _opset(model)):
            names.add(node.op_type)
    return sorted(names)


def is_definable(node: onnx.NodeProto, opset: int) -> bool:
    """Whether a node's operator has no rule of its own, and ONNX defines it by others."""
    ruled = node.op_type in RULES or node.op_type in FLAT or node.op_type in REFUSED
    if ruled or node.domain not in ("", "ai.onnx"):
        return False
    schema = defs.get_schema(node.op_type, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]  # no stub
