import json
from typing import Any

import pytest

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import read_manifest

D = "ab" * 32


def manifest(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "schema": 1,
        "name": "net",
        "kind": "classification",
        "classes": 3,
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3], "role": "logits"}],
        "loss": "cross-entropy",
        "trainable": [{"name": "w", "dtype": "float32", "shape": [4, 3]}],
        "training": [],
        "opset": 17,
        "minimum_agent_version": "0.1.0",
        "files": {"infer.onnx": D, "weights.safetensors": D},
    }
    return json.dumps({**fields, **changes}).encode()


def training(**changes: Any) -> list[dict[str, Any]]:
    graph = {"name": "sgd", "file": "train/sgd.onnx", "loss": "cross-entropy", "optimiser": "sgd"}
    return [{**graph, "trainable": ["w"], "state": [], "scalars": ["learning_rate"], **changes}]


def test_a_manifest_is_read() -> None:
    assert read_manifest(manifest()).trainable[0].shape == [4, 3]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"classes": None}, "classes"),
        ({"kind": "regression"}, "classes"),
        ({"trainable": []}, "trainable"),
        ({"trainable": [{"name": "w", "dtype": "float32", "shape": [1]}] * 2}, "trainable names repeat"),
        ({"trainable": [{"name": "w", "dtype": "float64", "shape": [1]}]}, "dtype"),
        ({"trainable": [{"name": "w", "dtype": "float32", "shape": [0]}]}, "shape"),
        ({"trainable": [{"name": "w", "dtype": "float32", "shape": [2**31] * 3}]}, "trainable values"),
        ({"trainable": [{"name": "__metadata__", "dtype": "float32", "shape": [1]}]}, "__metadata__"),
        ({"trainable": [{"name": "w", "dtype": "float32", "shape": [1], "role": "task:a b"}]}, "role"),
        ({"inputs": [{"name": "x", "dtype": "float32", "shape": ["n"]}] * 2}, "input names repeat"),
        ({"training": training()}, "'train/sgd.onnx' is not listed"),
        ({"training": training(file="infer.onnx", series="train/s.onnx")}, "'sgd': file 'train/s.onnx' is not listed"),
        ({"training": training(trainable=["v"], file="infer.onnx")}, "'v'"),
        ({"training": training(file="infer.onnx") * 2}, "training graph names repeat"),
        ({"files": {"infer.onnx": D}}, "'weights.safetensors' is not listed"),
        ({"files": {"infer.onnx": D, "weights.safetensors": D, "manifest.json": D}}, "manifest.json"),
    ],
)
def test_an_inconsistent_manifest_is_refused_by_name(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        read_manifest(manifest(**changes))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        ".hidden",
        "a\\b",
        "a b",
        "a\x00b",
        "",
        "a" * 129,
        "ä",
        "a\n",
    ],
)
def test_a_file_name_that_could_leave_the_bundle_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        read_manifest(manifest(files={"infer.onnx": D, "weights.safetensors": D, name: D}))
