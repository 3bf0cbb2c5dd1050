"""From an ONNX model and calibration data to a bundle."""

from pathlib import Path

import onnx

from edge_agent.model.bundle import WEIGHTS, Bundle, refuse_taken, write_bundle
from edge_agent.model.inference import INFERENCE_GRAPH
from edge_agent.model.session import Session
from edge_agent.wire.tensors import encode_weights
from server_bridge.bundles.checks import checked_model, refuse_name
from server_bridge.bundles.data import read_data
from server_bridge.bundles.fixed_tensors import with_fixed
from server_bridge.bundles.graphs_of import renewed_names, trained, training_graphs, within_cap
from server_bridge.bundles.head import HEAD_FILE, cut_head, head_graphs, with_embedding
from server_bridge.bundles.inference_file import inference_file, initial_weights
from server_bridge.bundles.label_free import label_free_file
from server_bridge.bundles.manifest_of import manifest_of
from server_bridge.bundles.monitors import Noted, Told, monitors_on
from server_bridge.bundles.settings import BuildSettings
from server_bridge.bundles.source import read_model, served_model

__all__ = ["BuildSettings", "build_bundle"]


def build_bundle(
    model: onnx.ModelProto | Path,
    data: Path,
    settings: BuildSettings,
    out: Path,
    *,
    told: Told = lambda name, share: None,
    noted: Noted = lambda notes: None,
) -> Bundle:
    """Check a model, write its training graphs, calibrate its monitors and write the bundle.

    A classifier that ends in a Softmax is served with a LogSoftmax in its place: log-probabilities are logits
    (the softmax of them is the probabilities), so losses, drift and training mean the same.

    Args:
        model: an ONNX model, or its file.
        data: held-out NPZ for the calibration.
        settings: see `BuildSettings`.
        out: a directory that does not exist, or is empty.
        told: of the calibration's progress.
        noted: given what an operator should know of the calibration.

    Raises:
        ConfigError: the false alarms that are asked for make no sense for the stream.
        DataError: the model or the data are unfit (named, with the remedy).
        StorageError: the bundle cannot be written.
    """
    refuse_name(settings.name)
    refuse_taken(out)
    served = served_model(checked_model(read_model(model)), settings.loss)
    Session("the model", served.SerializeToString(), {}, threads=1)  # refuses types that do not fit together
    graphs = training_graphs(served, settings)
    names = [*trained(served, settings), *renewed_names(graphs)]
    weights = initial_weights(served, names)
    head = cut_head(served, names, settings.embedding) if settings.head else None
    if head is not None:
        served = with_embedding(served, head)
        graphs += head_graphs(head, settings)
    graphs = [with_fixed(graph, weights) for graph in within_cap(graphs)]
    files = {
        INFERENCE_GRAPH: inference_file(served, weights),
        WEIGHTS: encode_weights(weights),
        **({} if head is None else {HEAD_FILE: inference_file(head.model, weights)}),
    }
    for graph in graphs:
        for file, model_of_it in graph.models.items():
            files[file] = model_of_it.SerializeToString(deterministic=True)
            Session(file, files[file], {}, threads=1)
    manifest = manifest_of(served, weights, graphs, settings, files, None if head is None else head.spec)
    held_out = read_data(data, manifest.inputs, manifest.classes, manifest.ignored_label)
    session = Session(INFERENCE_GRAPH, files[INFERENCE_GRAPH], weights, threads=1)
    monitors = monitors_on(
        manifest,
        session.run,
        held_out,
        batch_size=settings.monitor_batch,
        wish=settings.wish,
        seed=settings.seed,
        told=told,
    )
    if settings.label_free:
        files |= label_free_file(manifest, session.run, held_out, seed=settings.seed)
    noted(monitors.notes)
    return write_bundle(out, *monitors.in_bundle(manifest, files))
