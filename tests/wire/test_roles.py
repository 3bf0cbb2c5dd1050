import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import HeadSpec, Manifest, OutputSpec, TensorSpec, TrainableSpec, TrainingGraphSpec
from edge_agent.wire.roles import changed_specs, graph_named, names_of, only, overlay, personal_specs, update_specs

NAMES = ["a", "b", "c", "d", "e"]
ROLES = ["shared", "personal", "task:t"]


def graph(trainable: list[str], **fields: object) -> TrainingGraphSpec:
    given = {
        "name": "sgd",
        "file": "train/sgd.onnx",
        "loss": "mse",
        "optimiser": "sgd",
        "trainable": trainable,
        "state": [],
        "scalars": ["learning_rate"],
    }
    return TrainingGraphSpec.model_validate({**given, **fields})


def manifest(roles: dict[str, str], graphs: list[TrainingGraphSpec], **fields: object) -> Manifest:
    files = dict.fromkeys(("infer.onnx", "weights.safetensors", *(one.file for one in graphs)), "a" * 64)
    given = {
        "name": "m",
        "kind": "regression",
        "inputs": [TensorSpec(name="x", dtype="float32", shape=["n", 2])],
        "outputs": [
            OutputSpec(name="y", dtype="float32", shape=["n", 1], role="value"),
            OutputSpec(name="h", dtype="float32", shape=["n", 4], role="embedding"),
        ],
        "loss": "mse",
        "trainable": [TrainableSpec(name=name, dtype="float32", shape=[2], role=role) for name, role in roles.items()],
        "training": graphs,
        "opset": 17,
        "minimum_agent_version": "0.1.0",
        "files": files | {"head.onnx": "b" * 64},
    }
    return Manifest.model_validate({**given, **fields})


@given(st.data())
def test_what_is_sent_and_what_stays_are_all_that_changes_and_apart(data: st.DataObject) -> None:
    roles = {name: data.draw(st.sampled_from(ROLES)) for name in NAMES}
    trainable = data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    statistics = data.draw(st.lists(st.sampled_from([name for name in NAMES if name not in trainable] or ["a"])))
    one = graph(trainable, statistics=sorted(set(statistics) - set(trainable)))
    made = manifest(roles, [one])
    sent, personal = names_of(update_specs(made, one)), names_of(personal_specs(made.trainable))
    changed = [spec.name for spec in changed_specs(made, one)]
    assert not sent & personal
    assert set(changed) == {*one.trainable, *one.statistics} == sent | (personal & set(changed))
    assert changed == [name for name in NAMES if name in changed]
    assert {name for name, role in roles.items() if role == "personal"} == personal


@given(st.lists(st.sampled_from(NAMES), unique=True))
def test_an_overlay_replaces_its_own_and_writes_to_neither(over: list[str]) -> None:
    weights = {name: np.zeros(2, np.float32) for name in NAMES}
    values = {name: np.ones(2, np.float32) for name in over}
    laid = overlay(weights, values)
    assert list(laid) == NAMES
    assert {name for name in NAMES if laid[name].all()} == set(over)
    assert not any(tensor.any() for tensor in weights.values())
    assert set(only(laid, over)) == set(over)


def test_a_graph_that_is_not_there_is_named_with_those_that_are() -> None:
    made = manifest({"a": "shared"}, [graph(["a"])])
    assert graph_named(made, "sgd").name == "sgd"
    with pytest.raises(WireError, match=r"no training graph 'adam' \(there are: 'sgd'\)"):
        graph_named(made, "adam")


@pytest.mark.parametrize(
    ("fields", "head", "problem"),
    [
        ({"embedding": "h"}, None, "embedding 'h', which no head has"),
        ({"embedding": "y"}, ("h", "head.onnx", ["a"]), "embedding 'y', which no head has"),
        ({"embedding": "h"}, ("h", "head.onnx", ["b"]), "trains 'a', which is not in the head"),
        ({}, ("y", "head.onnx", ["a"]), "'y' is no output of role embedding"),
        ({}, ("h", "head.onnx", ["z"]), "unknown tensor 'z'"),
        ({}, ("h", "other.onnx", ["a"]), "file 'other.onnx' is not listed"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_by_name(
    fields: dict[str, str], head: tuple[str, str, list[str]] | None, problem: str
) -> None:
    spec = None if head is None else HeadSpec(embedding=head[0], file=head[1], trainable=head[2])
    roles = {"a": "shared", "b": "shared"}
    with pytest.raises(ValueError, match=problem):
        manifest(roles, [graph(["a"], **fields)], head=spec)
    fitting = HeadSpec(embedding="h", file="head.onnx", trainable=["a", "b"])
    assert manifest(roles, [graph(["a"], embedding="h")], head=fitting).head == fitting
