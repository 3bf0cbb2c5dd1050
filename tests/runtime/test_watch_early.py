"""A monitor that judges each sample as its label comes does not wait for the end of a batch to alarm."""

from pathlib import Path

import numpy as np

from edge_agent.model.bundle import Bundle
from tests.runtime.bench import Parts
from tests.runtime.watched import OWN, SIZE, drawn, labelled, labels_of, rules_of, served_of, watched_bundle
from tests.training.tiny_bundle import CLASSES

PORTION = 3


def _fed(parts: Parts, bundle: Bundle, first: int, count: int, *, wrong: bool) -> list[int]:
    """Labelled samples in small portions; the flags raised by each."""
    x, outputs = drawn(count, 7 + first)
    labels = (outputs.argmin(axis=1) if wrong else labels_of(outputs, 10_007 + first)).astype(np.int64) % CLASSES
    raised = []
    for start in range(0, count, PORTION):
        rows = slice(start, min(count, start + PORTION))
        batch, made = served_of(bundle, first + start, x[rows], outputs[rows])
        with parts.samples_db.transaction():
            joined = parts.store.add(batch, made, 0.0)
            joined += parts.store.label(labelled(first + start, labels[rows]), 0.0)
        raised.append(parts.watch.consume(joined, parts.active))
    return raised


def test_an_alarm_comes_within_a_batch_and_nothing_is_kept_before_it(tmp_path: Path, bundle: Bundle) -> None:
    whole = watched_bundle(bundle)
    parts = Parts(tmp_path, whole, rules=rules_of(whole, label_free="off"))
    parts.activate(OWN, 1)
    assert sum(_fed(parts, whole, 0, 20 * SIZE, wrong=False)) == 0
    seen = parts.watch.cursor
    assert seen % SIZE == 0
    flags = _fed(parts, whole, 20 * SIZE, SIZE - 1, wrong=True)
    assert sum(flags) == 1
    assert parts.watch.cursor - seen == (flags.index(1) + 1) * PORTION
    (flag,) = parts.flags()
    # The 44 losses before the drift happen to be 1.6 times the usual (0.73, 0.46): the likeliest begin is before them.
    began = int(flag.first_drifted_sample.removeprefix("s"))
    assert 17 * SIZE <= began <= 20 * SIZE
    _fed(parts, whole, 21 * SIZE, SIZE, wrong=False)
    parts.close()
