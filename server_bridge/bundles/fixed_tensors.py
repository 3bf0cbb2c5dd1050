"""Trainable tensors that one training graph reads and leaves alone: others may have changed them since the build."""

from collections.abc import Collection
from dataclasses import replace

import onnx

from server_bridge.bundles.gradients.training_graph import TrainingGraph


def with_fixed(graph: TrainingGraph, names: Collection[str]) -> TrainingGraph:
    """The same step, taking the tensors that it only reads as inputs, not as the values of the build.

    A subset's graph is run on weights that a fit, a round of another graph or a release made.

    Args:
        names: every tensor that some graph of the bundle changes.
    """
    fixed = [tensor.name for tensor in graph.model.graph.initializer if tensor.name in names]
    if not fixed:
        return graph
    return replace(
        graph,
        model=_fed(graph.model, names),
        spec=graph.spec.model_copy(update={"fixed": fixed}),
        series=None if graph.series is None else _fed(graph.series, names),
    )


def _fed(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """The model, fed these tensors."""
    held = model.graph.initializer
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.initializer[:]
    made.graph.initializer.extend(tensor for tensor in held if tensor.name not in names)
    for tensor in held:
        if tensor.name in names:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            made.graph.input.append(value)
    return made
