"""Nets of torch's two exporters: gradients and twenty steps as close to float64 as torch's own float32 comes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.checks import checked_model, trainable_names
from tests.bundles.gradients.differences import Array, gradients_of
from tests.bundles.nets import initialisers, save_npz

pytestmark = pytest.mark.oracle

ARCHITECTURES = [
    "mlp", "temporal", "residual", "mobile", "bottleneck", "skipping", "encoder", "gru", "lstm", "text", "large-text",
    "tied", "shared",
]  # fmt: skip
FILES = {
    "temporal": "temporal",
    "mobile": "mobile",
    "mobile-as-traced": "mobile",
    "encoder": "encoder",
    "encoder-as-traced": "encoder",
    "encoder-with-attention": "encoder",
    "gru": "gru",
    "text": "text",
}
TRAINED = ["mlp", "residual", "encoder", "text"]
TRAINED_LONG = [name for name in ARCHITECTURES if name not in TRAINED]
STEPS = 20
BATCHES = (1, 5, 17)
LEARNING_RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.003}
LARGEST_ERROR = 2e-5
"""Of the tensor's largest gradient."""
LARGEST_ERROR_MLP = 1e-5
RESOLUTION = 2.4e-7
"""Two units in the last place of float32: below them neither error means anything."""


class Net:
    """An exported net beside the one it was exported from."""

    def __init__(self, architecture: str, raw: onnx.ModelProto, *, folded: bool) -> None:
        from tests.bundles.exported import architectures, reference

        self.reference, self.architectures, self.name = reference, architectures, architecture
        self.about = architectures.ARCHITECTURES[architecture]
        net = architectures.made(architecture)
        self.net = architectures.fused(net) if folded else net
        self.raw, self.model = raw, checked_model(raw)
        self.patterns = ["head.*"] if self.about.frozen else ["*"]
        self.trainable = trainable_names(self.model, self.patterns)
        self.ties = reference.ties(self.model, self.trainable, self.net)
        self.given = initialisers(self.model)

    def data(self, rows: int, seed: int = 1, length: int = 0) -> tuple[Array, Array]:
        x: Array = self.architectures.example(self.name, rows, seed, length).numpy()
        rng = np.random.default_rng(seed)
        if self.about.task == "mse":
            return x, rng.normal(size=rows).astype(np.float32)
        return x, rng.integers(0, self.architectures.CLASSES, rows)

    def torch(self, dtype: str) -> Any:
        return self.reference.Reference(self.net, self.model, self.ties, dtype, self.about.task)


def by_script(architecture: str, *, opset: int = 17) -> Net:
    from tests.bundles.exported import architectures, exporting

    return Net(
        architecture, exporting.by_script(architecture, architectures.made(architecture), opset=opset), folded=True
    )


def check_gradients(net: Net, length: int = 0) -> None:
    """Loss and gradients of every batch size."""
    from tests.bundles.exported.reference import distance

    largest = LARGEST_ERROR_MLP if net.name == "mlp" else LARGEST_ERROR
    for rows in BATCHES:
        x, labels = net.data(rows, length=length)
        exact, narrow = net.torch("float64"), net.torch("float32")
        expected_loss = exact.backward(x, labels)
        narrow.backward(x, labels)
        expected = exact.gradients(net.given)
        loss, gradients = gradients_of(net.model, net.trainable, net.about.task, x, labels)
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        for name, value in expected.items():
            np.testing.assert_allclose(gradients[name], value, rtol=0, atol=largest * np.abs(value).max(), err_msg=name)
        size = distance({name: np.zeros_like(value) for name, value in expected.items()}, expected)
        assert distance(gradients, expected) <= max(
            2 * distance(narrow.gradients(net.given), expected), RESOLUTION * size
        )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_of_a_traced_net(architecture: str) -> None:
    check_gradients(by_script(architecture))


@pytest.mark.parametrize("file", FILES)
def test_gradients_of_a_net_of_the_newer_exporter(file: str) -> None:
    raw = onnx.load(Path(__file__).with_name("files") / f"{file}.onnx")
    check_gradients(Net(FILES[file], raw, folded="as-traced" not in file))


def test_tensor_that_is_used_in_several_places_is_one() -> None:
    net = by_script("tied")
    assert net.trainable == ["table.weight", "middle.weight", "middle.bias"]
    readers = [made.op_type for made in net.model.graph.node if "table.weight" in made.input]
    assert sorted(readers) == ["Gather", "Transpose"]


@pytest.mark.parametrize("length", [5, 12, 31])
def test_gradients_where_sequences_have_any_length(length: int) -> None:
    raw = onnx.load(Path(__file__).with_name("files") / "sequence.onnx")
    check_gradients(Net("sequence", raw, folded=True), length)


@pytest.mark.parametrize(
    ("architecture", "opset"),
    [("temporal", 13), ("text", 13), ("encoder", 14), ("mobile", 15), ("residual", 16), ("text", 19), ("text", 20)],
)
def test_gradients_at_other_opsets(architecture: str, opset: int) -> None:
    check_gradients(by_script(architecture, opset=opset))


@pytest.mark.parametrize(
    "architecture", [*TRAINED, *(pytest.param(name, marks=pytest.mark.long) for name in TRAINED_LONG)]
)
def test_twenty_steps_are_as_close_to_float64_as_torchs_own(architecture: str, tmp_path: Path) -> None:
    """At one of the batch sizes each, in turn; all of them at all sizes take minutes."""
    check_twenty_steps(architecture, BATCHES[ARCHITECTURES.index(architecture) % len(BATCHES)], tmp_path)


def check_twenty_steps(architecture: str, rows: int, folder: Path) -> None:
    """Parameters after twenty steps of each optimiser."""
    from tests.bundles.exported.reference import distance

    net = by_script(architecture)
    x, labels = net.data(max(STEPS * rows, 64), seed=2)
    calibration = save_npz(folder / "c.npz", x=x[:64], label=labels[:64])
    settings = BuildSettings(net.patterns, net.about.task)
    bundle = build_bundle(net.raw, calibration, settings, folder / "bundle")
    batches = [(x[start : start + rows], labels[start : start + rows]) for start in range(0, STEPS * rows, rows)]
    for optimiser, rate in LEARNING_RATES.items():
        step = TrainingStep(bundle, optimiser, bundle.initial_weights())
        for features, targets in batches:
            step.step({"x": features}, targets, learning_rate=rate)
        exact, narrow = net.torch("float64"), net.torch("float32")
        for reference in (exact, narrow):
            reference.train(optimiser, rate, batches)
        expected = exact.weights(net.given)
        moved = distance(bundle.initial_weights(), expected)
        size = distance({name: np.zeros_like(value) for name, value in expected.items()}, expected)
        theirs, ours = distance(narrow.weights(net.given), expected), distance(step.weights(), expected)
        assert moved > 1e-3 * size
        assert ours <= max(2 * theirs, RESOLUTION * size), (optimiser, ours / max(theirs, 1e-30), ours / size)


@pytest.mark.long
@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in FILES])
def test_gradients_of_a_net_exported_afresh_by_the_newer_exporter(architecture: str) -> None:
    from tests.bundles.exported import architectures, exporting

    raw = exporting.by_dynamo(architecture, architectures.made(architecture))
    check_gradients(Net(architecture, raw, folded=True))


@pytest.mark.long
@pytest.mark.parametrize(("architecture", "opset"), [("mobile", 21), ("encoder", 22)])
def test_gradients_at_other_opsets_of_the_newer_exporter(architecture: str, opset: int) -> None:
    from tests.bundles.exported import architectures, exporting

    raw = exporting.by_dynamo(architecture, architectures.made(architecture), opset=opset)
    assert raw.opset_import[0].version == opset
    check_gradients(Net(architecture, raw, folded=True))
