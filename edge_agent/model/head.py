"""The part of a model above an embedding: run and trained on embeddings that were computed once."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.features import check_features
from edge_agent.model.inference import primary_output, refuse_unfit_weights
from edge_agent.model.session import Session
from edge_agent.wire.manifest import HeadSpec, Manifest, OutputSpec, TensorSpec, TrainingGraphSpec
from edge_agent.wire.roles import only
from edge_agent.wire.tensors import Weights


class HeadModel:
    """A bundle's head under given weights; used as an `InferenceModel` whose only input is the embedding.

    Args:
        bundle: a bundle with a head.
        weights: every trainable tensor of the bundle; the head's are copied.
        threads: threads inside an operator.

    Raises:
        DataError: the bundle has no head, the weights are unfit (named), or onnxruntime refuses the graph.
    """

    def __init__(self, bundle: Bundle, weights: Weights, *, threads: int = 1) -> None:
        refuse_unfit_weights(weights, bundle.manifest)
        head = head_of(bundle.manifest)
        self.bundle = bundle
        self.primary = primary_output(bundle.manifest)
        self._inputs = [embedding_output(bundle.manifest, head.embedding)]
        self._session = Session(head.file, bundle.read(head.file), only(weights, head.trainable), threads=threads)

    def run(
        self, features: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Outputs by name.

        Args:
            features: the embedding by its name, (n, ...) float32.
            outputs: those wanted; all if None.

        Raises:
            DataError: the embedding is missing, misshapen or wrongly typed.
        """
        check_features(features, self._inputs)
        return self._session.run(features, outputs)


def head_of(manifest: Manifest) -> HeadSpec:
    """The bundle's head.

    Raises:
        DataError: it has none.
    """
    if manifest.head is None:
        raise DataError(f"bundle {manifest.name!r} has no head", "build it with `server-bridge bundle build --head`")
    return manifest.head


def embedding_output(manifest: Manifest, name: str) -> OutputSpec:
    """An output of the inference graph whose role is embedding.

    Raises:
        DataError: there is none of that name.
    """
    for output in manifest.outputs:
        if output.name == name and output.role == "embedding":
            return output
    raise DataError(f"bundle {manifest.name!r} has no embedding {name!r}")


def fed_inputs(manifest: Manifest, spec: TrainingGraphSpec) -> Sequence[TensorSpec]:
    """What a training graph is fed beside labels and parameters: the model's inputs, or an embedding.

    Raises:
        DataError: it wants an embedding that the inference graph does not give.
    """
    return manifest.inputs if spec.embedding is None else [embedding_output(manifest, spec.embedding)]
