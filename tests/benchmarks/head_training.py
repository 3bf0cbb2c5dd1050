"""What training the head alone costs beside the whole, and what its embedding costs where nobody asks for it."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.descent import Unwatched, descend
from edge_agent.training.embedding_cache import EmbeddingCache
from edge_agent.training.head_training import Embedder
from edge_agent.training.schedule import ConstantRate
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.benchmarks.interleaved import interleave
from tests.benchmarks.report import Comparison
from tests.bundles.nets import Array, drawn, model_of, save_npz

TITLE = "The head on cached embeddings: CNN 545k, Adam, one thread"
SIDE, BATCH, CLASSES = 32, 32, 10
SAMPLES, EPOCHS = 320, 3
STEPS = 192
CALLS = 50


def run(*, runs: int) -> list[Comparison]:
    """A step, a round of three epochs, and serving at two batch sizes."""
    with tempfile.TemporaryDirectory() as folder:
        plain, headed = (built(Path(folder), head=head) for head in (False, True))
        return [
            _steps(headed, runs),
            _rounds(headed, Path(folder), runs),
            *(_serving(plain, headed, size, runs) for size in (1, BATCH)),
        ]


def cnn() -> onnx.ModelProto:
    """The net of the published experiment: two convolutions, two dense layers."""
    weights = drawn(
        np.random.default_rng(0),
        a_w=(32, 3, 3, 3),
        a_b=(32,),
        b_w=(64, 32, 3, 3),
        b_b=(64,),
        c_w=(128, 64 * 64),
        c_b=(128,),
        d_w=(CLASSES, 128),
        d_b=(CLASSES,),
    )
    nodes = [
        helper.make_node("Conv", ["x", "a.w", "a.b"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "b.w", "b.b"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p2"], ["f"]),
        helper.make_node("Gemm", ["f", "c.w", "c.b"], ["g"], transB=1),
        helper.make_node("Relu", ["g"], ["r3"]),
        helper.make_node("Gemm", ["r3", "d.w", "d.b"], ["y"], transB=1),
    ]
    return model_of(nodes, weights, shape=[3, SIDE, SIDE], output=[CLASSES])


def built(folder: Path, *, head: bool) -> Bundle:
    """The net as a bundle, with a head or without."""
    data = save_npz(folder / "calibration.npz", x=samples(400), label=np.arange(400) % CLASSES)
    settings = BuildSettings(
        trainable=["*"], loss="cross-entropy", optimisers=["adam"], subsets={"last": ["d.*"]}, head=head
    )
    return build_bundle(cnn(), data, settings, folder / f"bundle-{head}")


def samples(count: int) -> Array:
    """Noise: the cost does not depend on it."""
    return np.random.default_rng(1).normal(size=(count, 3, SIDE, SIDE)).astype(np.float32)


def _steps(bundle: Bundle, runs: int) -> Comparison:
    weights = bundle.initial_weights()
    x, label = samples(BATCH), np.arange(BATCH) % CLASSES
    embedding = InferenceModel(bundle, weights).run({"x": x}, ["r3"])
    steps = {name: TrainingStep(bundle, f"{name}adam", weights) for name in ("", "last-", "head-")}

    def head() -> None:
        for _ in range(STEPS):
            steps["head-"].step(embedding, label, learning_rate=1e-3)

    at_once = steps["head-"].steps_at_once(sum(array.nbytes for array in embedding.values()))
    several = {name: np.stack([array] * at_once) for name, array in embedding.items()}
    labels, rates = np.stack([label] * at_once), [1e-3] * at_once

    def together() -> None:
        for _ in range(0, STEPS, at_once):
            steps["head-"].steps(several, labels, learning_rates=rates)

    ways = {
        "the whole": lambda: steps[""].step({"x": x}, label, learning_rate=1e-3),
        "the last layer in the whole": lambda: steps["last-"].step({"x": x}, label, learning_rate=1e-3),
        f"the head, {STEPS} steps": head,
        f"the head, {STEPS} steps, {at_once} at once": together,
    }
    return Comparison(f"a step of {BATCH}", interleave(ways, runs=runs))


def _rounds(bundle: Bundle, folder: Path, runs: int) -> Comparison:
    weights = bundle.initial_weights()
    x, label = samples(SAMPLES), np.arange(SAMPLES) % CLASSES
    ids = [f"s{row}" for row in range(SAMPLES)]
    cache = EmbeddingCache(folder / "embeddings.cache")
    first = Embedder(bundle, weights, cache)
    first.remember([(ids, first.embed(ids, {"x": x}))])

    def whole() -> None:
        _descend(bundle, "adam", {"x": x}, label)

    def head(kept: EmbeddingCache) -> None:
        _descend(bundle, "head-adam", Embedder(bundle, weights, kept).embed(ids, {"x": x}).features, label)

    ways = {
        "the whole": whole,
        "the head, embeddings computed": lambda: head(EmbeddingCache(None)),
        "the head, embeddings from the cache": lambda: head(cache),
    }
    return Comparison(f"{EPOCHS} epochs of {SAMPLES}", interleave(ways, runs=runs, warm_up=1))


def _descend(bundle: Bundle, graph: str, features: dict[str, Array], label: Array) -> None:
    step = TrainingStep(bundle, graph, bundle.initial_weights())
    rate = ConstantRate(1e-3)
    descend(step, features, label, rate, epochs=EPOCHS, batch_size=BATCH, seed=0, watch=Unwatched())


def _serving(plain: Bundle, headed: Bundle, size: int, runs: int) -> Comparison:
    models = [InferenceModel(bundle, bundle.initial_weights()) for bundle in (plain, headed)]
    x = samples(size)

    def serve(model: InferenceModel) -> None:
        for _ in range(CALLS):
            model.run({"x": x}, [model.primary])

    ways = {
        "no embedding output": lambda: serve(models[0]),
        "an embedding output, not asked for": lambda: serve(models[1]),
    }
    return Comparison(f"serving {CALLS} batches of {size}", interleave(ways, runs=runs))
