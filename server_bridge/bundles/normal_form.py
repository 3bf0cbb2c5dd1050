"""Exporters' ways of writing the same model, made one."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import constant_tensors
from server_bridge.bundles.parameters import FROM_NODE
from server_bridge.bundles.sequences import cut_sequences
from server_bridge.bundles.shared_tensors import join_copies

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def normal_form(model: onnx.ModelProto) -> None:
    """Bring a model into the form that the build relies on, in place.

    What Constant nodes hold becomes initialisers, so that weights are found whoever wrote them. Parameters that torch
    wrote once, since they were equal, are parted again: trained together they would be tied; one that it wrote twice
    is one again (see `join_copies`). Dropout drops
    nothing, also where a model was exported in training mode: it is served and fine-tuned alike. Parts that are taken
    from a sequence are cut out of the tensor that was split. A classifier's
    tail, as skl2onnx writes it, is cut off (see `cut_labels`).

    Raises:
        DataError: no output can be trained (named).
    """
    _constants_outside(model.graph)
    join_copies(model.graph, _part_equals(model.graph))
    _without_dropping(model.graph)
    cut_sequences(model.graph)
    cut_labels(model.graph)


def cut_labels(graph: onnx.GraphProto) -> None:
    """Drop outputs that are labels or dictionaries, and take probabilities where they are still a tensor.

    A pair of probabilities (1 - p, p) of two classes, with p = sigmoid(z), becomes the logits (0, z).

    Raises:
        DataError: no tensor of floats is left.
    """
    kept = [_as_tensor(graph, value) for value in graph.output]
    outputs = [value for value in kept if value is not None]
    if not outputs:
        names = ", ".join(value.name for value in graph.output)
        raise DataError(f"no output is a tensor of floats (there are: {names})", "make the logits the first output")
    if len(outputs) < len(graph.output):
        del graph.output[:]
        graph.output.extend(outputs)
    _logits_of_two(graph)


def _as_tensor(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto | None:
    """An output that is a tensor of floats; the probabilities that a ZipMap takes; or None."""
    if value.type.HasField("tensor_type"):
        return value if value.type.tensor_type.elem_type in _FLOATS else None
    source = _producer(graph, value.name)
    if source is None or source.op_type != "ZipMap":
        return None
    classes = max(len(attribute.ints) + len(attribute.strings) for attribute in source.attribute)
    return helper.make_tensor_value_info(source.input[0], TensorProto.FLOAT, [None, classes])


def _logits_of_two(graph: onnx.GraphProto) -> None:
    output = graph.output[0].name
    pair = _producer(graph, output)
    if pair is None or pair.op_type != "Concat" or len(pair.input) != 2:
        return
    other, sigmoid = (_producer(graph, name) for name in pair.input)
    if other is None or sigmoid is None or (other.op_type, sigmoid.op_type) != ("Sub", "Sigmoid"):
        return
    if other.input[1] != sigmoid.output[0]:
        return
    pads = f"{output}.pads"
    graph.initializer.append(numpy_helper.from_array(np.array([0, 1, 0, 0], dtype=np.int64), pads))
    pair.CopyFrom(helper.make_node("Pad", [sigmoid.input[0], pads], [output], name=pair.name))


def _constants_outside(graph: onnx.GraphProto) -> None:
    constants = constant_tensors(graph)
    given = {tensor.name for tensor in graph.initializer}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in constants:
            tensor = TensorProto()
            tensor.CopyFrom(constants[node.output[0]])
            tensor.name, tensor.doc_string = node.output[0], FROM_NODE
            if tensor.name not in given:
                graph.initializer.append(tensor)
        else:
            kept.append(_copied(node))
    graph.ClearField("node")
    graph.node.extend(kept)


def _part_equals(graph: onnx.GraphProto) -> list[str]:
    """An Identity of an initialiser, which stands for a parameter of its own, becomes that parameter; its name is told.

    torch's exporter writes parameters of equal values once (all scales of fresh norms are one) and the others as
    Identity; parameters that are truly shared it reads by one name.
    """
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    parted: list[str] = []
    for node in graph.node:
        plain = node.op_type == "Identity" and node.domain in ("", "ai.onnx")
        if plain and node.input[0] in tensors and node.output[0] not in outputs:
            copied = TensorProto()
            copied.CopyFrom(tensors[node.input[0]])
            copied.name = node.output[0]
            tensors[copied.name] = copied
            graph.initializer.append(copied)
            parted.append(copied.name)
        else:
            kept.append(_copied(node))
    graph.ClearField("node")
    graph.node.extend(kept)
    return parted


def _without_dropping(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "Dropout" and node.domain in ("", "ai.onnx"):
            del node.input[1:]


def _producer(graph: onnx.GraphProto, value: str) -> onnx.NodeProto | None:
    return next((node for node in graph.node if value in node.output), None)


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied
