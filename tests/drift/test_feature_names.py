"""What a model's features are called."""

from edge_agent.drift.feature_names import feature_names
from edge_agent.wire.manifest import FeatureSpec, Manifest, OutputSpec, TensorSpec, TrainableSpec


def manifest(shapes: dict[str, list[int | str]], features: list[FeatureSpec] | None = None) -> Manifest:
    inputs = [TensorSpec(name=name, dtype="float32", shape=["n", *shape]) for name, shape in shapes.items()]
    return Manifest(
        name="net",
        kind="regression",
        inputs=inputs,
        outputs=[OutputSpec(name="y", dtype="float32", shape=["n", 1], role="value")],
        features=features or [],
        loss="mse",
        trainable=[TrainableSpec(name="w", dtype="float32", shape=[1])],
        opset=17,
        minimum_agent_version="0.1.0",
        files={"infer.onnx": "0" * 64, "weights.safetensors": "0" * 64},
    )


KELVIN, BAR = FeatureSpec(name="t", unit="K"), FeatureSpec(name="p", unit="bar")


def test_declared_features_name_every_value() -> None:
    assert feature_names(manifest({"x": [2]}, [KELVIN, BAR]), 2) == (["t", "p"], ["K", "bar"])


def test_declared_columns_of_a_window_take_turns() -> None:
    names, units = feature_names(manifest({"x": [3, 2]}, [KELVIN, BAR]), 6)
    assert names == ["t[0]", "p[0]", "t[1]", "p[1]", "t[2]", "p[2]"]
    assert units == ["K", "bar"] * 3


def test_without_declarations_inputs_are_numbered() -> None:
    assert feature_names(manifest({"x": [2], "s": [1]}), 3) == (["x[0]", "x[1]", "s"], ["", "", ""])


def test_a_free_dimension_is_numbered_as_it_comes() -> None:
    assert feature_names(manifest({"x": ["time", 2]}), 4)[0] == ["x[0]", "x[1]", "x[2]", "x[3]"]
    assert feature_names(manifest({"x": ["time"], "s": [1]}), 4)[0][0] == "feature[0]"
