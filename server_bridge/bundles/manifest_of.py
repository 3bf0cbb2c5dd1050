"""The manifest of a bundle, from its model and graphs."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import onnx
from onnx import TensorProto

from edge_agent.errors import DataError
from edge_agent.model.bundle import file_digests
from edge_agent.wire.manifest import (
    CLASSES_CAP,
    DType,
    HeadSpec,
    LossName,
    Manifest,
    OutputSpec,
    TensorSpec,
    TrainableSpec,
)
from edge_agent.wire.roles import PERSONAL
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.checks import opset, refuse_name
from server_bridge.bundles.gradients.forward import Forward, Shape
from server_bridge.bundles.gradients.objective import unfit_shape
from server_bridge.bundles.gradients.training_graph import TrainingGraph
from server_bridge.bundles.graphs_of import renewed_names
from server_bridge.bundles.personal import personal_names
from server_bridge.bundles.settings import BuildSettings

_REGRESSIONS = ("mse", "mae", "huber")
MINIMUM_AGENT_VERSION = "0.1.0"

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


def manifest_of(
    model: onnx.ModelProto,
    weights: Weights,
    graphs: Sequence[TrainingGraph],
    settings: BuildSettings,
    files: Mapping[str, bytes],
    head: HeadSpec | None = None,
) -> Manifest:
    """The manifest of a bundle whose monitors are still to be calibrated.

    Raises:
        DataError: an output that does not suit the loss, or names that no manifest can hold.
    """
    forward = Forward.read(model)
    first, *others = model.graph.output
    kind: Literal["classification", "regression"] = "regression" if settings.loss in _REGRESSIONS else "classification"
    classes = _classes(first.name, forward.shape(first.name), settings.loss)
    renewed, personal = renewed_names(graphs), personal_names(list(weights), settings.personal)
    outputs = [OutputSpec(**_tensor(first).model_dump(), role="value" if classes is None else "logits")]
    outputs += [OutputSpec(**_tensor(other).model_dump(), role="embedding") for other in others]
    _refuse_label_names(settings.label_names, classes)
    return Manifest(
        name=settings.name,
        kind=kind,
        classes=classes,
        inputs=[_tensor(value) for value in model.graph.input],
        outputs=outputs,
        features=list(settings.features),
        label_names=list(settings.label_names),
        loss=settings.loss,
        huber_delta=settings.huber_delta,
        trainable=[
            TrainableSpec(
                name=name,
                dtype="float32",
                shape=list(w.shape),
                role=PERSONAL if name in personal else "shared",
                statistic=name in renewed,
            )
            for name, w in weights.items()
        ],
        training=[graph.spec for graph in graphs],
        head=head,
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
    if loss != "cross-entropy":
        if shape[1:] not in ((), (1,)):
            raise unfit_shape(output, shape, loss)
        return None if loss in _REGRESSIONS else 2
    if len(shape) != 2 or shape[1] is None or shape[1] < 2:
        raise unfit_shape(output, shape, loss)
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
