"""A bundle small enough to check by hand: three-class softmax regression on four features."""

import json
import struct
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_agent.model.bundle import Bundle, file_digests, write_bundle
from edge_agent.wire.manifest import (
    Manifest,
    OutputSpec,
    TensorSpec,
    TrainableSpec,
    TrainingGraphSpec,
)
from edge_agent.wire.tensors import Weights, encode_weights

FEATURES, CLASSES = 4, 3
_OPSETS = [helper.make_opsetid("", 17)]


def tiny_weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    return {"b": np.zeros(CLASSES, np.float32), "w": rng.normal(size=(FEATURES, CLASSES)).astype(np.float32)}


def tiny_bundle(path: Path, weights: Weights | None = None) -> Bundle:
    """Write and load the bundle."""
    initial = encode_weights(weights or tiny_weights())
    files = {
        "infer.onnx": _inference_graph(initial),
        "train/sgd.onnx": _training_graph(),
        "weights.safetensors": initial,
    }
    manifest = Manifest(
        name="tiny",
        kind="classification",
        classes=CLASSES,
        inputs=[TensorSpec(name="x", dtype="float32", shape=["batch", FEATURES])],
        outputs=[OutputSpec(name="logits", dtype="float32", shape=["batch", CLASSES], role="logits")],
        loss="cross-entropy",
        trainable=[
            TrainableSpec(name="w", dtype="float32", shape=[FEATURES, CLASSES]),
            TrainableSpec(name="b", dtype="float32", shape=[CLASSES]),
        ],
        training=[
            TrainingGraphSpec(
                name="sgd",
                file="train/sgd.onnx",
                loss="cross-entropy",
                optimiser="sgd",
                trainable=["w", "b"],
                state=[],
                scalars=["learning_rate"],
                label_input="label",
            )
        ],
        opset=17,
        minimum_agent_version="0.1.0",
        files=file_digests(files),
    )
    return write_bundle(path, manifest, files)


def tiny_samples(count: int, seed: int = 1) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.int64]]:
    """Features and labels of a linearly separable problem."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, FEATURES)).astype(np.float32)
    truth = np.random.default_rng(99).normal(size=(FEATURES, CLASSES))
    return {"x": features}, (features @ truth).argmax(axis=1)


def numpy_loss(weights: Weights, features: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Mean cross-entropy in float64, the tests' own."""
    logits = features.astype(np.float64) @ weights["w"].astype(np.float64) + weights["b"]
    logits -= logits.max(axis=1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-log_probabilities[np.arange(len(labels)), labels].mean())


def numpy_descent(
    weights: Weights,
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    rows: list[NDArray[np.int64]],
    rate: float,
) -> dict[str, NDArray[np.float64]]:
    """Plain gradient descent over the given batches in float64, the tests' own."""
    w, b = weights["w"].astype(np.float64), weights["b"].astype(np.float64)
    for batch in rows:
        x, onehot = features[batch].astype(np.float64), np.eye(CLASSES)[labels[batch]]
        logits = x @ w + b
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        gradient = (p / p.sum(axis=1, keepdims=True) - onehot) / len(batch)
        w, b = w - rate * x.T @ gradient, b - rate * gradient.sum(axis=0)
    return {"b": b, "w": w}


def _inference_graph(weights_file: bytes) -> bytes:
    (header_bytes,) = struct.unpack("<Q", weights_file[:8])
    header = json.loads(weights_file[8 : 8 + header_bytes])
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["logits"])],
        "infer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [_external(name, header[name], 8 + header_bytes) for name in ("w", "b")],
    )
    return _serialised(graph)


def _serialised(graph: onnx.GraphProto) -> bytes:
    return bytes(helper.make_model(graph, opset_imports=_OPSETS, ir_version=9).SerializeToString())


def _external(name: str, entry: dict[str, list[int]], data_start: int) -> TensorProto:
    begin, end = entry["data_offsets"]
    tensor = TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=entry["shape"], data_location=TensorProto.EXTERNAL
    )
    places = {"location": "weights.safetensors", "offset": str(data_start + begin), "length": str(end - begin)}
    for key, value in places.items():
        tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return tensor


def _training_graph() -> bytes:
    floats, nodes = TensorProto.FLOAT, helper.make_node
    graph = helper.make_graph(
        [
            nodes("Gemm", ["x", "w", "b"], ["z"]),
            nodes("SoftmaxCrossEntropyLoss", ["z", "label"], ["loss"], reduction="mean"),
            nodes("Softmax", ["z"], ["p"], axis=1),
            nodes("OneHot", ["label", "depth", "off_on"], ["onehot"]),
            nodes("Sub", ["p", "onehot"], ["error"]),
            nodes("Shape", ["x"], ["rows_i"], start=0, end=1),
            nodes("Cast", ["rows_i"], ["rows"], to=floats),
            nodes("Div", ["error", "rows"], ["dz"]),
            nodes("Gemm", ["x", "dz"], ["dw"], transA=1),
            nodes("ReduceSum", ["dz", "axis0"], ["db"], keepdims=0),
            nodes("Mul", ["dw", "learning_rate"], ["sw"]),
            nodes("Mul", ["db", "learning_rate"], ["sb"]),
            nodes("Sub", ["w", "sw"], ["out.w"]),
            nodes("Sub", ["b", "sb"], ["out.b"]),
        ],
        "sgd",
        [
            helper.make_tensor_value_info("x", floats, ["batch", FEATURES]),
            helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("w", floats, [FEATURES, CLASSES]),
            helper.make_tensor_value_info("b", floats, [CLASSES]),
            helper.make_tensor_value_info("learning_rate", floats, []),
        ],
        [
            helper.make_tensor_value_info("loss", floats, []),
            helper.make_tensor_value_info("out.w", floats, [FEATURES, CLASSES]),
            helper.make_tensor_value_info("out.b", floats, [CLASSES]),
        ],
        [
            helper.make_tensor("depth", TensorProto.INT64, [], [CLASSES]),
            helper.make_tensor("off_on", floats, [2], [0.0, 1.0]),
            helper.make_tensor("axis0", TensorProto.INT64, [1], [0]),
        ],
    )
    return _serialised(graph)
