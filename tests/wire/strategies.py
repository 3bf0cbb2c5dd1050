"""Hypothesis strategies for every wire model, made from the models' own annotations."""

import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel, StringConstraints
from pydantic.fields import FieldInfo

from edge_agent.wire.blobs import CHUNK_BYTES_CHOICES, ChunkList, chunk_count
from edge_agent.wire.manifest import (
    SAFETENSORS_METADATA,
    HeadSpec,
    Manifest,
    OutputSpec,
    TaskSpec,
    TensorSpec,
    TrainableSpec,
    TrainingGraphSpec,
)
from edge_agent.wire.messages import Reply, TrainFindings
from edge_agent.wire.messages.event import CountsBucket

M = TypeVar("M", bound=BaseModel)
FEW = 4

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
file_names = st.from_regex(r"[A-Za-z0-9_]{1,8}(\.[a-z]{1,4})?(/[a-z]{1,4})?", fullmatch=True)


@st.composite
def chunk_lists(draw: st.DrawFn) -> ChunkList:
    chunk_bytes = draw(st.sampled_from(CHUNK_BYTES_CHOICES))
    length = draw(st.integers(0, 3 * chunk_bytes))
    count = chunk_count(length, chunk_bytes)
    hashes = draw(st.lists(digests, min_size=count, max_size=count))
    return ChunkList(length=length, chunk_bytes=chunk_bytes, digests=hashes)


@st.composite
def counts_buckets(draw: st.DrawFn) -> CountsBucket:
    labelled = draw(st.integers(0, 2**53))
    return CountsBucket(
        bucket=draw(st.integers(-(2**53), 2**53)),
        labelled=labelled,
        right=draw(st.integers(0, labelled)),
        loss_sum=draw(st.floats(allow_nan=False, allow_infinity=False)),
    )


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    fields = draw(_fields_of(Reply))
    needed = {"ok": "result", "error": "reason", "sequence-low": "highest_sequence"}.get(fields["status"])
    if needed is not None and fields[needed] is None:
        fields["status"] = "accepted"
    if fields["status"] == "ok" and isinstance(fields["result"], TrainFindings):
        fields["status"] = "accepted"
    return Reply(**fields)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    drawn = frozenset({"inputs", "outputs", "trainable", "training", "files", "head", "tasks", "frozen"})
    fields = draw(_fields_of(Manifest, drawn))
    fields["kind"] = "regression" if fields["classes"] is None else "classification"
    fields["inputs"] = draw(_distinct(models(TensorSpec)))
    fields["outputs"] = draw(_distinct(models(OutputSpec)))
    fields["trainable"] = draw(_distinct(models(TrainableSpec).map(_small).filter(_may_be_a_tensor)))
    fields["training"] = draw(_distinct(models(TrainingGraphSpec), least=0))
    tensors = [spec.name for spec in fields["trainable"]]
    fields["head"] = draw(_heads(fields["outputs"], tensors))
    fields["tasks"] = draw(_task_lists(fields["classes"]))
    changed = {
        "trainable": tensors,
        "statistics": [],
        "fixed": draw(st.lists(st.sampled_from(tensors), max_size=FEW)),
        "embedding": fields["head"] and fields["head"].embedding,
        "task": draw(st.sampled_from([None, *(task.name for task in fields["tasks"])])),
    }
    fields["training"] = [graph.model_copy(update=changed) for graph in fields["training"]]
    listed = [
        "infer.onnx",
        "weights.safetensors",
        *(file for graph in fields["training"] for file in sorted(_files(graph))),
    ]
    listed += [spec.file for spec in (*fields["tasks"], *([fields["head"]] if fields["head"] else []))]
    fields["frozen"] = draw(st.dictionaries(st.sampled_from(listed), st.lists(names, max_size=FEW), max_size=FEW))
    fields["frozen"].pop("manifest.json", None)
    listed += ["frozen.safetensors"] if fields["frozen"] else []
    fields["files"] = {name: draw(digests) for name in listed if name != "manifest.json"}
    fields["training"] = [graph for graph in fields["training"] if fields["files"].keys() >= _files(graph)]
    return Manifest(**fields)


def _files(graph: TrainingGraphSpec) -> set[str]:
    """What a training graph needs listed."""
    return {graph.file} | ({graph.series} if graph.series else set())


@st.composite
def _heads(draw: st.DrawFn, outputs: list[OutputSpec], tensors: list[str]) -> HeadSpec | None:
    """A head above one of the embeddings, or none."""
    embeddings = [output.name for output in outputs if output.role == "embedding"]
    if not embeddings or not draw(st.booleans()):
        return None
    return HeadSpec(embedding=draw(st.sampled_from(embeddings)), file="head.onnx", trainable=tensors)


@st.composite
def _task_lists(draw: st.DrawFn, classes: int | None) -> list[TaskSpec]:
    """Tasks whose first is that of the bundle's own inference graph, or none."""
    found = draw(st.lists(st.text("aZ9_-", min_size=1, max_size=6), unique=True, max_size=FEW))
    others = st.none() if classes is None else st.integers(2, 1000)
    return [
        TaskSpec(name=name, file=f"infer-{place}.onnx", classes=draw(others))
        if place
        else TaskSpec(name=name, file="infer.onnx", classes=classes)
        for place, name in enumerate(found)
    ]


def _small(spec: TrainableSpec) -> TrainableSpec:
    return spec.model_copy(update={"shape": [min(size, 50) for size in spec.shape]})


def _may_be_a_tensor(spec: TrainableSpec) -> bool:
    return spec.name != SAFETENSORS_METADATA


_SPECIAL: dict[type[BaseModel], Callable[[], st.SearchStrategy[Any]]] = {
    ChunkList: chunk_lists,
    CountsBucket: counts_buckets,
    Reply: replies,
    Manifest: manifests,
}


def models(model: type[M]) -> st.SearchStrategy[M]:
    """Valid instances of a model; made once, since that takes longer than to draw from it."""
    return _models(model)


@cache
def _models(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    special = _SPECIAL.get(model)
    if special is not None:
        return special()
    return _fields_of(model).map(lambda fields: model(**fields))


@cache
def _fields_of(model: type[BaseModel], without: frozenset[str] = frozenset()) -> st.SearchStrategy[dict[str, Any]]:
    chosen = {name: field for name, field in model.model_fields.items() if name not in without}
    return st.fixed_dictionaries({name: _field(field) for name, field in chosen.items()})


def _field(field: FieldInfo) -> st.SearchStrategy[Any]:
    return of_type(field.annotation, field.metadata)


def of_type(annotation: Any, metadata: Sequence[Any] = ()) -> st.SearchStrategy[Any]:
    """Values of an annotated type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return of_type(arguments[0], [*arguments[1:], *metadata])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*(of_type(argument) for argument in arguments))
    if origin is list:
        least, most = _sizes(metadata)
        return st.lists(of_type(arguments[0]), min_size=least, max_size=most)
    if origin is tuple:
        return st.tuples(*(of_type(argument) for argument in arguments)).map(lambda ends: tuple(sorted(ends)))
    if origin is dict:
        least, most = _sizes(metadata)
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), min_size=least, max_size=most)
    if annotation is type(None):
        return st.none()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return models(annotation)
    return _scalar(annotation, _flat(metadata))


def _scalar(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(_bound(metadata, Ge, "ge", -(2**53)), _bound(metadata, Le, "le", 2**53))
    if annotation is float:
        low, above = _bound(metadata, Ge, "ge", None), _bound(metadata, Gt, "gt", None)
        high = _bound(metadata, Le, "le", None)
        return st.floats(
            low if low is not None else above,
            high,
            exclude_min=above is not None,
            allow_nan=False,
            allow_infinity=False,
        )
    if annotation is str:
        return _text(metadata)
    raise TypeError(f"no strategy for {annotation!r}")


def _text(metadata: list[Any]) -> st.SearchStrategy[str]:
    pattern = next((item.pattern for item in metadata if getattr(item, "pattern", None)), None)
    if pattern is None:
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
    if "x00" in pattern:
        return names
    if "[0-9a-f]{64}" in pattern:
        return digests
    if "/" in pattern:
        return file_names
    return st.from_regex(pattern, fullmatch=True)


def _flat(metadata: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            flat += _flat(item.metadata)
        elif isinstance(item, StringConstraints) or not hasattr(item, "__iter__"):
            flat.append(item)
        else:
            flat += list(item)
    return flat


def _bound(metadata: list[Any], kind: type[Any], attribute: str, otherwise: Any) -> Any:
    values = [getattr(item, attribute) for item in metadata if isinstance(item, kind)]
    return values[0] if values else otherwise


def _sizes(metadata: Sequence[Any]) -> tuple[int, int]:
    flat = _flat(metadata)
    least = max([0, *(item.min_length for item in flat if isinstance(item, MinLen))])
    return least, min([FEW, *(item.max_length for item in flat if isinstance(item, MaxLen))])


def _distinct(strategy: st.SearchStrategy[Any], least: int = 1) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=least, max_size=3, unique_by=lambda spec: spec.name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
