"""Inference with weights supplied from outside the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.features import InputCheck, check_lengths
from edge_agent.model.runs import in_runs
from edge_agent.model.session import Session
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.tasks import task_named, weights_of
from edge_agent.wire.tensors import Weights, check_weights

INFERENCE_GRAPH = "infer.onnx"


class InferenceModel:
    """A bundle's graph under given weights; may be run from any thread.

    Every trainable tensor is supplied: onnxruntime would take a missing one from the file without a word.

    Args:
        bundle: a loaded bundle.
        weights: every trainable tensor; copied.
        threads: threads inside an operator.
        task: of a bundle with tasks, whose graph to run; None: the first one's.
        frozen: the bundle's frozen tensors, where models share them: never to be written to. Read if not given.

    Raises:
        DataError: a tensor is missing, extra, misshapen, wrongly typed or not finite (named), the bundle has
            no such task, or the graph is refused by onnxruntime or lacks an output that the manifest says.
    """

    def __init__(
        self,
        bundle: Bundle,
        weights: Weights,
        *,
        threads: int = 1,
        task: str | None = None,
        frozen: Weights | None = None,
    ) -> None:
        refuse_unfit_weights(weights, bundle.manifest)
        self.bundle = bundle
        self.primary = primary_output(bundle.manifest)
        self._wanted = [self.primary]
        self._check = InputCheck(bundle.manifest.inputs)
        try:
            chosen = task_named(bundle.manifest, task)
        except WireError as error:
            raise DataError(error.problem) from None
        file = INFERENCE_GRAPH if chosen is None else chosen.file
        own = weights_of(bundle.manifest, weights, chosen)
        self._session = Session(file, bundle.read(file), own, threads=threads, lent=bundle.frozen(file, frozen))
        given = {output.name for output in self._session.native.get_outputs()}
        if absent := sorted({output.name for output in bundle.manifest.outputs} - given):
            raise DataError(f"{file} has no output {absent[0]!r}, which the manifest says", "build the bundle again")

    def run(
        self, features: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Outputs by name.

        Args:
            features: an array per input, the batch first.
            outputs: those wanted; all if None. What is not asked for, such as an embedding, is not copied.

        Raises:
            DataError: an input is missing, unknown, misshapen or wrongly typed (named).
        """
        self._check(features)
        return self._session.run(features, outputs)

    def predict(self, features: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """The primary output alone: :meth:`run` for the hot path.

        Raises:
            DataError: as :meth:`run`.
        """
        self._check(features)
        return self._session.listed(features, self._wanted)[0]

    def predict_in_runs(
        self, features: Mapping[str, NDArray[Any]], outputs: Sequence[str], *, run_rows: int, most_s: float
    ) -> list[NDArray[Any]]:
        """Outputs of a long batch, ``run_rows`` samples a run.

        Args:
            outputs: those wanted, at least one.
            most_s: no run but the first begins when so much time has passed: the outputs are then of the first rows.

        Raises:
            DataError: as :meth:`run`.
        """
        rows = check_lengths(features)
        self._check({name: array[:run_rows] for name, array in features.items()})  # as the first run, so all are
        return in_runs(self._session, features, outputs, rows=rows, run_rows=run_rows, most_s=most_s)


def primary_output(manifest: Manifest) -> str:
    """The output that is scored and trained on: the first logits or value.

    Raises:
        DataError: the manifest has none.
    """
    for output in manifest.outputs:
        if output.role in ("logits", "value"):
            return output.name
    raise DataError(f"bundle {manifest.name!r} has no output of role logits or value")


def refuse_unfit_weights(weights: Weights, manifest: Manifest) -> None:
    """Check weights against a manifest, in this layer's error.

    Raises:
        DataError: a tensor is missing, extra, misshapen, wrongly typed or not finite (named).
    """
    try:
        check_weights(weights, manifest.trainable)
    except WireError as error:
        raise DataError(f"bundle {manifest.name!r}: {error}") from error
