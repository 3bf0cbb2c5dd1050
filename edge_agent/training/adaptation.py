"""One look at the stream between rounds, in the worker: follow what came since the last, and judge what it led to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.link.durable import read_file
from edge_agent.model.bundle import Bundle
from edge_agent.samples.reading import is_known, read_evaluation_set, read_feature_set
from edge_agent.samples.record import FeatureSet, SampleSet
from edge_agent.training.adapter_settings import AdapterSettings
from edge_agent.training.job import AdaptationJob
from edge_agent.training.lost_classes import ALL, Evidence
from edge_agent.training.online_adapter import OnlineAdapter
from edge_agent.training.overlay_file import SavedOverlay, decode_overlay
from edge_agent.training.usable import of_this_bundle
from edge_agent.wire.tensors import Weights

Metrics = dict[str, int | float]
JUDGED_ANEW = "judged-anew"
"""Labelled samples that judged and had not judged before."""
CLASS_LOST = "class-lost"
"""The class that is found lost."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What a look at the stream came to.

    Attributes:
        overlay: the new :class:`SavedOverlay` as a file; None: there is none, the release is to serve alone.
        metrics: ``batches`` that made it, ``batches-anew``, ``rate-mean`` of the steps, ``distance`` from the release,
            ``went-back`` 1 where a number was not finite; and of the judgement what an update's reply tells:
            ``proof-examples``, losses and accuracies before (release) and after (overlay), ``made-worse``, and
            ``class-lost``, the number of a class that all looks together show to be lost.
    """

    overlay: bytes | None
    metrics: Metrics


def follow(job: AdaptationJob, bundle: Bundle, release: Weights) -> Followed:
    """Adapt to the unlabelled samples that came since, in batches, in their order; then judge by labelled ones.

    Samples of the train part are followed, with a label or without; holdout samples, else those of the proof part,
    judge, those from the first followed on. At first only the newest batch is followed: what lies before it may be of
    before the release. An incomplete batch waits.

    Raises:
        DataError: no such graph, samples that do not fit, or a damaged overlay.
        StorageError: the store cannot be read.
    """
    settings = AdapterSettings(
        job.training_graph,
        job.minimum,
        job.maximum,
        steps=job.steps,
        label_shift=job.label_shift,
        farthest=job.farthest,
        least_samples=min(8, job.batch_size),
    )
    adapter = OnlineAdapter(bundle, release, settings, threads=job.limits.threads)
    before = None if job.overlay_file is None else decode_overlay(read_file(job.overlay_file))
    if before is not None:
        adapter.restore(before.saved)
    last = None if before is None else before.last
    seen = read_feature_set(job.samples_db, bundle.manifest.inputs, from_sample=None, limit=job.max_samples, after=last)
    rows = _whole(len(seen.ids), job.batch_size, newest=before is None)
    metrics, last = _adapt(adapter, seen, rows, job.batch_size)
    if adapter.batches == 0:
        return Followed(None, metrics)
    first = before.first if before is not None else seen.ids[rows[0]]
    last = last or (before.last if before is not None else first)
    judged, evidence, told = _judge(adapter, job, bundle, first, before)
    metrics |= told
    if adapter.batches == 0:
        return Followed(None, metrics)
    made = SavedOverlay(adapter.digest, adapter.batches, first, last, judged, evidence.to_json(), adapter.save())
    return Followed(made.encode(), metrics)


def _whole(count: int, batch_size: int, *, newest: bool) -> range:
    """Rows of whole batches, from the oldest on; or of the newest alone."""
    if newest:
        return range(count - batch_size, count) if count >= batch_size else range(0)
    return range(count // batch_size * batch_size)


def _adapt(adapter: OnlineAdapter, seen: FeatureSet, rows: range, batch_size: int) -> tuple[Metrics, str | None]:
    """Figures, and the last sample followed, if any."""
    rates, last, went_back = [], None, 0
    for start in range(rows.start, rows.stop, batch_size):
        batch = _rows(seen.features, slice(start, start + batch_size))
        done = adapter.adapt(batch)
        rates.append(done.rate)
        last, went_back = seen.ids[start + batch_size - 1], went_back | int(done.went_back is not None)
    metrics: Metrics = {"batches": adapter.batches, "batches-anew": len(rates), "distance": adapter.distance}
    if rates:
        metrics["rate-mean"] = float(np.mean(rates))
    return metrics | ({"went-back": 1} if went_back else {}), last


def _judge(
    adapter: OnlineAdapter, job: AdaptationJob, bundle: Bundle, first: str, before: SavedOverlay | None
) -> tuple[str | None, Evidence, Metrics]:
    """The newest sample that judged, what all looks have come to, and the judgement; an overlay at fault is dropped."""
    manifest, classes = bundle.manifest, bundle.manifest.classes or 0
    judged = None if before is None else before.judged
    evidence = Evidence.none(classes) if before is None else Evidence.from_json(before.evidence, classes)
    since = first if is_known(job.samples_db, manifest.inputs, first) else None  # all that is left came after it
    samples = read_evaluation_set(job.samples_db, manifest.inputs, since_sample=since, limit=job.judge_samples)
    samples = of_this_bundle(samples, manifest)
    if not len(samples.labels):
        return judged, evidence, {"proof-examples": 0, JUDGED_ANEW: 0}
    comparison, anew = adapter.judge(samples.features, samples.labels), _anew(samples, judged)
    new = np.arange(len(samples.ids)) >= len(samples.ids) - anew
    evidence = evidence.look(samples.labels[new], comparison.before.rows(new), comparison.after.rows(new))
    metrics: Metrics = {**comparison.metrics(), JUDGED_ANEW: anew}
    fault = evidence.fault
    if fault is not None:
        adapter.reset()
        metrics |= {"made-worse": 1} | ({} if fault == ALL else {CLASS_LOST: fault})
    return samples.ids[-1], evidence, metrics


def _anew(samples: SampleSet, judged: str | None) -> int:
    return len(samples.ids) - (samples.ids.index(judged) + 1 if judged in samples.ids else 0)


def _rows(features: Mapping[str, NDArray[Any]], rows: slice) -> dict[str, NDArray[Any]]:
    return {name: array[rows] for name, array in features.items()}
