"""From an ONNX model and calibration data to a bundle."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no stubs
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import WEIGHTS, Bundle, file_digests, refuse_taken, write_bundle
from edge_agent.model.inference import INFERENCE_GRAPH, primary_output
from edge_agent.model.session import Session
from edge_agent.wire.manifest import CLASSES_CAP, DType, LossName, Manifest, OutputSpec, TensorSpec, TrainableSpec
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.bundles.calibrate import BATCH_SIZE_DEFAULT, calibrated_monitors, outputs_on
from server_bridge.bundles.checks import checked_model, for_training, opset, refuse_name, trainable_names
from server_bridge.bundles.data import read_data
from server_bridge.bundles.gradients.batch_statistics import Statistics, statistics_names
from server_bridge.bundles.gradients.forward import Forward, Shape
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.bundles.gradients.training_graph import TrainingGraph, training_graph

MINIMUM_AGENT_VERSION = "0.1.0"
MODEL_CAP_BYTES = 1024 * 1024 * 1024
_HEADER_LENGTH_BYTES = 8

_DTYPES: Mapping[int, DType] = MappingProxyType(
    {
        TensorProto.FLOAT: "float32",
        TensorProto.DOUBLE: "float64",
        TensorProto.FLOAT16: "float16",
        TensorProto.INT64: "int64",
        TensorProto.INT32: "int32",
        TensorProto.UINT8: "uint8",
        TensorProto.BOOL: "bool",
    }
)


@dataclass(frozen=True)
class BuildSettings:
    """What a model does not say of itself.

    Args:
        trainable: shell patterns of initialiser names; ``!`` excludes.
        loss: ``cross-entropy`` (classification) or ``mse`` (regression).
        name: the bundle's.
        monitor_batch: labelled samples a batch of the drift monitor.
        label_names: of the classes, for people.
        seed: of the calibration's resampling.
        statistics: of batch normalisation in training: ``frozen``, or the ``batch``'s own, where the running ones are
            renewed, travel with the weights, and need not be left out of ``trainable``.
    """

    trainable: Sequence[str]
    loss: LossName
    name: str = "model"
    monitor_batch: int = BATCH_SIZE_DEFAULT
    label_names: Sequence[str] = ()
    seed: int = 0
    statistics: Statistics = "frozen"


def build_bundle(model: onnx.ModelProto | Path, data: Path, settings: BuildSettings, out: Path) -> Bundle:
    """Check a model, write its training graphs, calibrate its monitor and write the bundle.

    A classifier that ends in a Softmax is served with a LogSoftmax in its place: log-probabilities are logits
    (the softmax of them is the probabilities), so losses, drift and training mean the same.

    Args:
        model: an ONNX model, or its file.
        data: held-out NPZ for the calibration.
        settings: see `BuildSettings`.
        out: a directory that does not exist, or is empty.

    Raises:
        DataError: the model or the data are unfit (named, with the remedy).
        StorageError: the bundle cannot be written.
    """
    refuse_name(settings.name)
    refuse_taken(out)
    served = served_model(checked_model(_read(model)), settings.loss)
    Session("the model", served.SerializeToString(), {}, threads=1)  # refuses types that do not fit together
    trainable = trainable_names(served, settings.trainable)
    if settings.statistics == "batch":
        renewed = statistics_names(served)
        trainable = [name for name in trainable if name not in renewed]
    graphs = training_graphs(served, trainable, settings.loss, settings.statistics)
    weights = _weights(served, [*trainable, *_renewed(graphs)])
    files = {
        INFERENCE_GRAPH: _external(served, weights),
        WEIGHTS: encode_weights(weights),
        **{graph.spec.file: graph.model.SerializeToString(deterministic=True) for graph in graphs},
    }
    for graph in graphs:
        Session(graph.spec.file, files[graph.spec.file], {}, threads=1)
    manifest = _manifest(served, weights, graphs, settings, files)
    held_out = read_data(data, manifest.inputs, manifest.classes)
    session = Session(INFERENCE_GRAPH, files[INFERENCE_GRAPH], weights, threads=1)
    outputs = outputs_on(lambda features: session.run(features)[primary_output(manifest)], held_out)
    monitors = calibrated_monitors(
        manifest, outputs, held_out.labels, batch_size=settings.monitor_batch, seed=settings.seed
    )
    return write_bundle(out, manifest.model_copy(update={"monitors": monitors}), files)


def served_model(model: onnx.ModelProto, loss: LossName) -> onnx.ModelProto:
    """A checked model whose first output is logits or a value; a last Softmax becomes LogSoftmax."""
    output = model.graph.output[0].name
    nodes: Sequence[onnx.NodeProto] = model.graph.node
    last = next((node for node in nodes if output in node.output), None)
    if loss == "cross-entropy" and last is not None and last.op_type == "Softmax":
        if any(output in node.input for node in nodes):
            raise DataError(
                f"the probabilities {output!r} are used inside the graph", "make the logits the first output"
            )
        last.op_type = "LogSoftmax"
    return model


def training_graphs(
    served: onnx.ModelProto, trainable: Sequence[str], loss: LossName, statistics: Statistics = "frozen"
) -> list[TrainingGraph]:
    """A training step for every optimiser.

    Raises:
        DataError: an operator above a trainable tensor has no gradient rule (node, operator, attribute named).
    """
    forward = Forward.read(for_training(served))
    output = served.graph.output[0].name
    return [
        training_graph(forward, output, trainable, loss, optimiser, statistics=statistics) for optimiser in OPTIMISERS
    ]


def _renewed(graphs: Sequence[TrainingGraph]) -> list[str]:
    """The running statistics that the training graphs renew."""
    return list(dict.fromkeys(name for graph in graphs for name in graph.spec.statistics))


def _read(model: onnx.ModelProto | Path) -> onnx.ModelProto:
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


def _weights(model: onnx.ModelProto, trainable: Sequence[str]) -> Weights:
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    return {name: _array(tensors[name]) for name in trainable}


def _array(tensor: onnx.TensorProto) -> NDArray[np.float32]:
    array: NDArray[Any] = numpy_helper.to_array(tensor)
    return array.astype(np.float32)


def _external(model: onnx.ModelProto, weights: Weights) -> bytes:
    """The graph with its trainable tensors pointing into the weights file."""
    offsets = _offsets(encode_weights(weights))
    outside = onnx.ModelProto()
    outside.CopyFrom(model)
    for tensor in outside.graph.initializer:
        if tensor.name in offsets:
            start, stop = offsets[tensor.name]
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", WEIGHTS), ("offset", str(start)), ("length", str(stop - start))):
                tensor.external_data.add(key=key, value=value)
    return bytes(outside.SerializeToString(deterministic=True))


def _offsets(payload: bytes) -> dict[str, tuple[int, int]]:
    """Where each tensor lies in a safetensors file: 8 bytes of header length, the header, the data."""
    (length,) = struct.unpack("<Q", payload[:_HEADER_LENGTH_BYTES])
    begin = _HEADER_LENGTH_BYTES + length
    header: dict[str, Any] = json.loads(payload[_HEADER_LENGTH_BYTES:begin])
    entries = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (begin + start, begin + stop) for name, (start, stop) in entries.items()}


def _manifest(
    model: onnx.ModelProto,
    weights: Weights,
    graphs: Sequence[TrainingGraph],
    settings: BuildSettings,
    files: dict[str, bytes],
) -> Manifest:
    forward = Forward.read(model)
    first, *others = model.graph.output
    kind: Literal["classification", "regression"] = "regression" if settings.loss == "mse" else "classification"
    classes = _classes(first.name, forward.shapes[first.name], settings.loss)
    outputs = [OutputSpec(**_tensor(first).model_dump(), role="value" if classes is None else "logits")]
    outputs += [OutputSpec(**_tensor(other).model_dump(), role="embedding") for other in others]
    _refuse_label_names(settings.label_names, classes)
    return Manifest(
        name=settings.name,
        kind=kind,
        classes=classes,
        inputs=[_tensor(value) for value in model.graph.input],
        outputs=outputs,
        label_names=list(settings.label_names),
        loss=settings.loss,
        trainable=[
            TrainableSpec(name=name, dtype="float32", shape=list(w.shape), statistic=name in _renewed(graphs))
            for name, w in weights.items()
        ],
        training=[graph.spec for graph in graphs],
        opset=opset(model),
        minimum_agent_version=MINIMUM_AGENT_VERSION,
        files=file_digests(files),
    )


def _refuse_label_names(names: Sequence[str], classes: int | None) -> None:
    for name in names:
        refuse_name(name)
    if names and len(names) != (classes or 0):
        raise DataError(
            f"{len(names)} label names are given, the model has {classes or 'no'} classes",
            "give --label-name once for each class, in order, or not at all",
        )


def _classes(output: str, shape: Shape, loss: LossName) -> int | None:
    if loss == "mse":
        if shape[1:] not in ((), (1,)):
            raise DataError(f"output {output!r} has shape {list(shape)}; mse needs (batch,) or (batch, 1)")
        return None
    if len(shape) != 2 or shape[1] is None or shape[1] < 2:
        raise DataError(f"output {output!r} has shape {list(shape)}; cross-entropy needs (batch, classes)")
    if shape[1] > CLASSES_CAP:
        raise DataError(f"output {output!r} has {shape[1]} classes, at most {CLASSES_CAP} are possible")
    return shape[1]


def _tensor(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    dtype = _DTYPES.get(tensor.elem_type)
    if dtype is None:
        raise DataError(
            f"{value.name!r} has element type {tensor.elem_type}", f"possible: {', '.join(_DTYPES.values())}"
        )
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
    return TensorSpec(name=value.name, dtype=dtype, shape=shape)
