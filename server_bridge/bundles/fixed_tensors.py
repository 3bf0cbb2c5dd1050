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
    held = graph.model.graph.initializer
    fixed = [tensor for tensor in held if tensor.name in names]
    if not fixed:
        return graph
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensor for tensor in held if tensor.name not in names)
    for tensor in fixed:
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        model.graph.input.append(value)
    spec = graph.spec.model_copy(update={"fixed": [tensor.name for tensor in fixed]})
    return replace(graph, model=model, spec=spec)
