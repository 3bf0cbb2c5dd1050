"""Real remounts: the demo's net and recordings, each client a subject whose sensor was turned."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.fit import FitSettings
from server_bridge.demo.base import BATCH_SIZE, EPOCHS, LEARNING_RATE
from server_bridge.demo.data import INPUT, Part, standardisation, windows_of
from server_bridge.demo.net import draw_net
from server_bridge.demo.recordings import load_recordings
from server_bridge.demo.timing import FIRST_LEARNING_RATE, LOCAL_EPOCHS, ROUND_MOST_SAMPLES
from tests.benchmarks.cohorts_data.drifted import Drifted
from tests.benchmarks.cohorts_data.real import Samples, Training, fit_base, layers_of, split_half, update

TRAINING = Training(LOCAL_EPOCHS, FIRST_LEARNING_RATE, BATCH_SIZE)
# (axes, signs) of each remount; the first two are the demo's.
REMOUNTS = (
    ((1, 2, 0, 4, 5, 3), (1, 1, 1, 1, 1, 1)),
    ((0, 1, 2, 3, 4, 5), (-1, -1, 1, -1, -1, 1)),
    ((2, 0, 1, 5, 3, 4), (1, 1, 1, 1, 1, 1)),
    ((0, 1, 2, 3, 4, 5), (1, -1, -1, 1, -1, -1)),
    ((1, 0, 2, 4, 3, 5), (1, 1, -1, 1, 1, -1)),
)


class MotionFleet:
    """Clients on remounted motion sensors."""

    def __init__(self, work: Path, seed: int, training: Training = TRAINING) -> None:
        self.training = training
        self.recordings, motions = load_recordings()
        fit, held = (windows_of(self.recordings, [part]) for part in (Part.FIT, Part.CALIBRATION))
        net = draw_net(*standardisation(fit), classes=len(motions), seed=seed)
        self.bundle = fit_base(
            net,
            INPUT,
            Samples(fit.signal, fit.label),
            Samples(held.signal, held.label),
            FitSettings(EPOCHS, seed, LEARNING_RATE, BATCH_SIZE),
            work / f"motion-{seed}",
        )
        self.base = self.bundle.initial_weights()

    def draw(
        self, families: Sequence[tuple[int, Sequence[int]]], seed: int, *, samples: int = ROUND_MOST_SAMPLES
    ) -> Drifted:
        """Clients of the given (remount, subjects): the newest so many windows of a shuffled replay.

        A subject named twice gets disjoint windows as far as there are enough.
        """
        rng = np.random.default_rng([seed, samples])
        pools = {s: self._pool(s, rng) for s in {s for _, subjects in families for s in subjects}}
        changes, truth, halves, examples = [], [], [], []
        for number, (remount, subjects) in enumerate(families):
            for subject in subjects:
                pool = pools[subject]
                mine = remounted(pool.take(np.arange(min(samples, len(pool.labels)))), remount)
                pools[subject] = pool.take(np.roll(np.arange(len(pool.labels)), -samples))
                seed_of_client = int(rng.integers(2**31))
                changes.append(update(self.bundle, self.base, mine, self.training, seed_of_client))
                halves.append(split_half(self.bundle, self.base, mine, self.training, seed_of_client))
                truth.append(number)
                examples.append(float(len(mine.labels)))
        parts = np.stack(changes), np.array(truth, np.intp), np.array(halves), None, np.array(examples)
        return Drifted(*parts, layers_of(self.base))

    def _pool(self, subject: int, rng: np.random.Generator) -> Samples:
        own = windows_of([r for r in self.recordings if r.subject == subject], [Part.FIT, Part.CALIBRATION])
        return Samples(own.signal, own.label).take(rng.permutation(len(own.label)))


def remounted(samples: Samples, remount: int) -> Samples:
    """What a sensor turned so gives for the same motion."""
    axes, signs = REMOUNTS[remount]
    signal: NDArray[np.float32] = samples.features[:, axes] * np.array(signs, np.float32)[None, :, None]
    return Samples(np.ascontiguousarray(signal), samples.labels)
