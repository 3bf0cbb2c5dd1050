"""Training the head alone: what lies below the embedding is frozen, so that each sample passes it once.

The embeddings of a round's samples are computed with the base weights, or taken from the cache of a round before;
every epoch, and every loss before and after, then costs the head only.

Source: measured in FIELD: on cached embeddings an epoch costs about a thousandth of a full step's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError, StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.model.head import HeadModel, embedding_output, head_of
from edge_agent.model.inference import InferenceModel
from edge_agent.training.embedding_cache import EmbeddingCache
from edge_agent.training.evaluation import BLOCK_ROWS
from edge_agent.wire.tensors import Weights


@dataclass(frozen=True, slots=True)
class Embedded:
    """Samples as the head sees them.

    Attributes:
        features: the embeddings by the embedding's name, (n, ...) float32.
        computed: how many rows were computed; the others came from the cache.
    """

    features: dict[str, NDArray[Any]]
    computed: int


class Embedder:
    """Embeddings under given weights.

    Args:
        bundle: a bundle with a head.
        base: every trainable tensor; those of the head do not matter.
        cache: of rounds before.
        threads: threads inside an operator.

    Raises:
        DataError: the bundle has no head, or an embedding without a fixed size; or the weights are unfit (named).
    """

    def __init__(self, bundle: Bundle, base: Weights, cache: EmbeddingCache, *, threads: int = 1) -> None:
        head = head_of(bundle.manifest)
        output = embedding_output(bundle.manifest, head.embedding)
        self._name = head.embedding
        self._shape = [size for size in output.shape[1:] if isinstance(size, int)]
        if len(self._shape) != len(output.shape) - 1:
            raise DataError(f"embedding {self._name!r} has shape {output.shape}", "it needs fixed sizes but the batch")
        self._model = InferenceModel(bundle, base, threads=threads)
        self._key = frozen_digest(bundle, base)
        self._cache = cache
        self._known = cache.read(self._key, self._shape)

    def embed(self, ids: Sequence[str], features: Mapping[str, NDArray[Any]]) -> Embedded:
        """The embeddings of samples; one that is not finite is given so, and left out by the round.

        Args:
            ids: the samples'; an id stands for one sample for ever.
            features: (len(ids), ...) by input name.

        Raises:
            DataError: the features do not fit the model.

        Cost: one pass of the frozen part over the samples that are not cached, in blocks.
        """
        rows = np.empty((len(ids), *self._shape), np.float32)
        missing = [row for row, name in enumerate(ids) if name not in self._known.place]
        found = [row for row, name in enumerate(ids) if name in self._known.place]
        if self._known.rows is not None and found:
            rows[found] = self._known.rows[[self._known.place[ids[row]] for row in found]]
        for start in range(0, len(missing), BLOCK_ROWS):
            block = missing[start : start + BLOCK_ROWS]
            outputs = self._model.run({name: array[block] for name, array in features.items()}, [self._name])
            rows[block] = outputs[self._name]
        return Embedded({self._name: rows}, len(missing))

    def remember(self, parts: Sequence[tuple[Sequence[str], Embedded]]) -> bool:
        """Keep embeddings for the next round, if any is new; returns whether they are kept.

        A disk that refuses costs the next round's time only.

        Args:
            parts: ids and embeddings, the most needed last.
        """
        if not any(embedded.computed for _, embedded in parts):
            return True
        ids = [name for names, _ in parts for name in names]
        try:
            self._cache.write(self._key, ids, np.concatenate([part.features[self._name] for _, part in parts]))
        except StorageError:
            return False
        return True


def is_of_head(bundle: Bundle, training_graph: str) -> bool:
    """Whether a training graph works on embeddings."""
    return bundle.training_graph(training_graph).embedding is not None


def scored_model(bundle: Bundle, training_graph: str, weights: Weights, *, threads: int) -> InferenceModel | HeadModel:
    """The model that is fed what a training graph is fed.

    Raises:
        DataError: no such graph, or the weights are unfit (named).
    """
    if is_of_head(bundle, training_graph):
        return HeadModel(bundle, weights, threads=threads)
    return InferenceModel(bundle, weights, threads=threads, task=bundle.training_graph(training_graph).task)


def frozen_digest(bundle: Bundle, base: Weights) -> str:
    """Names all that an embedding depends on but its sample: bundle, embedding and the tensors below the head."""
    head = head_of(bundle.manifest)
    digest = sha256(f"{bundle.digest}\n{head.embedding}\n".encode())
    for name in sorted(set(base) - set(head.trainable)):
        digest.update(f"{name}\n".encode())
        digest.update(np.ascontiguousarray(base[name]).data)
    return digest.hexdigest()
