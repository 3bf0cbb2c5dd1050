"""Personal tensors in the worker: the gateway's own values go into the weights, and what a round made of them stays."""

from pathlib import Path

from edge_agent.errors import DataError, WireError
from edge_agent.link.durable import read_file
from edge_agent.model.bundle import Bundle
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.manifest import TrainingGraphSpec
from edge_agent.wire.roles import changed_specs, names_of, only, overlay, personal_specs, update_specs
from edge_agent.wire.tensors import Weights, check_weights, decode_weights


def with_personal(bundle: Bundle, weights: Weights, file: Path | None) -> Weights:
    """Weights from outside with this gateway's values of the personal tensors; whatever those had come with is dropped.

    Args:
        weights: every trainable tensor.
        file: the values, named by their digest; None: the bundle's own.

    Raises:
        DataError: the file is damaged or does not fit the bundle (named).
        StorageError: it cannot be read.
    """
    specs = personal_specs(bundle.manifest.trainable)
    if not specs:
        return weights
    if file is None:
        return overlay(weights, only(bundle.initial_weights(), names_of(specs)))
    data = read_file(file)
    try:
        if sha256_hex(data) != file.stem:
            raise WireError("weights", "the file is damaged")
        values = decode_weights(data)
        check_weights(values, specs)
    except WireError as error:
        raise DataError(f"personal values {file.name}: {error.problem}") from None
    return overlay(weights, values)


def parted(bundle: Bundle, graph: TrainingGraphSpec, base: Weights, trained: Weights) -> tuple[Weights, Weights]:
    """What a round made, in two: what is sent, and what stays.

    Returns:
        Trained minus base of the shared tensors that the graph changes; the values of every personal tensor, empty
        if it changes none.

    Raises:
        DataError: the graph changes nothing that is shared, so that there is nothing to send.
    """
    sent = update_specs(bundle.manifest, graph)
    if not sent:
        raise DataError(f"training graph {graph.name!r} trains personal tensors only: there is nothing to send")
    delta = {spec.name: trained[spec.name] - base[spec.name] for spec in sent}
    personal = names_of(personal_specs(bundle.manifest.trainable))
    moved = personal & names_of(changed_specs(bundle.manifest, graph))
    return delta, only(trained, personal) if moved else {}
