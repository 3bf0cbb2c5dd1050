"""A bundle's manifest: what a model takes, gives and trains, and how its drift is judged."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge_agent.wire.codec import Count, Digest, Finite, Message, Name, Text, WireModel, decode

MANIFEST_CAP_BYTES = 1024 * 1024

DType = Literal["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]
Dimension = Annotated[int, Field(ge=1)] | Name


class TensorSpec(WireModel):
    """A graph input or output. A named dimension is free; the first one is the batch."""

    name: Name
    dtype: DType
    shape: Annotated[list[Dimension], Field(max_length=8)]


class OutputSpec(TensorSpec):
    """A graph output and what it means."""

    role: Literal["logits", "value", "embedding"]


class FeatureSpec(WireModel):
    """A measured quantity behind an input, for people."""

    name: Name
    unit: Annotated[str, Field(max_length=64)] = ""


class TrainableSpec(WireModel):
    """A trainable tensor, named as the graph's initialiser. ``role``: shared, personal or task:<name>."""

    name: Name
    dtype: Literal["float32"]
    shape: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=8)]
    role: Annotated[str, Field(pattern=r"^(shared|personal|task:[A-Za-z0-9_-]{1,64})$")] = "shared"


class TrainingGraphSpec(WireModel):
    """A training step in plain ONNX operators.

    Graph inputs: the model's inputs under their own names; ``label_input``; for each trainable
    ``t`` the parameter ``t`` and, per name ``s`` in ``state``, the optimiser state ``<s>.<t>``
    (zero at first); the scalars (float32, shape []), among them ``learning_rate`` and, for Adam,
    ``step`` (1 for the first step). Outputs: ``loss`` (mean over the batch), ``out.<t>`` and
    ``out.<s>.<t>``.
    """

    name: Name
    file: Name
    loss: Literal["cross-entropy", "mse"]
    optimiser: Literal["sgd", "adam"]
    trainable: list[Name]
    state: list[Name]
    scalars: list[Name]
    label_input: Name = "label"


class MonitorSpec(WireModel):
    """A calibrated drift monitor."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    parameters: Annotated[dict[Name, bool | int | Finite | str], Field(max_length=64)]
    batch_size: Annotated[int, Field(ge=1, le=100_000)]
    false_alarm_rate: Annotated[float, Field(ge=0, le=1)]
    false_alarm_unit: Literal["batch"] = "batch"
    evidence: Text = ""


class Manifest(Message):
    """``manifest.json``; its SHA-256 is the bundle's address."""

    name: Name
    kind: Literal["classification", "regression"]
    classes: Annotated[int, Field(ge=2, le=100_000)] | None = None
    inputs: Annotated[list[TensorSpec], Field(min_length=1, max_length=32)]
    outputs: Annotated[list[OutputSpec], Field(min_length=1, max_length=32)]
    features: Annotated[list[FeatureSpec], Field(max_length=10_000)] = []
    label_names: Annotated[list[Name], Field(max_length=10_000)] = []
    loss: Literal["cross-entropy", "mse"]
    trainable: Annotated[list[TrainableSpec], Field(min_length=1, max_length=10_000)]
    training: Annotated[list[TrainingGraphSpec], Field(max_length=16)] = []
    monitors: Annotated[dict[Name, MonitorSpec], Field(max_length=32)] = {}
    opset: Count
    minimum_agent_version: Name
    files: Annotated[dict[Name, Digest], Field(max_length=64)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.kind == "classification") != (self.classes is not None):
            raise ValueError("classes must be given for a classification, and only for it")
        names = [spec.name for spec in self.trainable]
        if len(set(names)) != len(names):
            raise ValueError("trainable names repeat")
        for graph in self.training:
            unknown = set(graph.trainable) - set(names)
            if unknown:
                raise ValueError(f"training graph {graph.name!r} trains unknown tensors {sorted(unknown)}")
            if graph.file not in self.files:
                raise ValueError(f"training graph {graph.name!r}: file {graph.file!r} is not listed")
        for required in ("infer.onnx", "weights.safetensors"):
            if required not in self.files:
                raise ValueError(f"file {required!r} is not listed")
        for file in self.files:
            if file.startswith("/") or ".." in file.split("/") or "\\" in file:
                raise ValueError(f"file name {file!r} leaves the bundle")
        return self


def read_manifest(payload: bytes) -> Manifest:
    """A manifest from outside.

    Raises:
        WireError: too large, malformed or inconsistent (named).
    """
    return decode(Manifest, payload, cap_bytes=MANIFEST_CAP_BYTES)
