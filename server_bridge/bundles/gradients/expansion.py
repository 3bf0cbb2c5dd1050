"""Operators that ONNX defines by others, written out where a gradient must pass and no rule is there."""

from collections.abc import Collection

import onnx
from onnx import defs, inliner

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
    """
    for _ in range(_ROUNDS_MAX):
        names = _definable(model, trainable)
        if not names:
            break
        model = inliner.inline_selected_functions(model, [("", name) for name in names], inline_schema_functions=True)
    return model


def _definable(model: onnx.ModelProto, trainable: Collection[str]) -> list[str]:
    """Operators without a rule that a trainable tensor runs through and that have a definition."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    depends = depending(Forward(model, {}, {}), model.graph.node, trainable)
    names = set()
    for node in model.graph.node:
        ruled = node.op_type in RULES or node.op_type in FLAT or node.op_type in REFUSED
        if node.domain in ("", "ai.onnx") and not ruled and depends.intersection(node.input):
            schema = defs.get_schema(node.op_type, opset)
            if schema.has_function or schema.has_context_dependent_function:
                names.add(node.op_type)
    return sorted(names)
