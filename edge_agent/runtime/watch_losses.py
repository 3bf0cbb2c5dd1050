"""Losses of labelled rows, as the rules have them, and the rows that are read again."""

import numpy as np
from numpy.typing import NDArray

from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import Place
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.scoring import row_losses
from edge_agent.samples.store import SampleStore

LOOKED_BACK_ROWS = 4000
"""Labelled rows that are read again to say where a drift began that a monitor dates back."""


def losses_of(rules: WatchRules, rows: list[LabelledRow]) -> NDArray[np.float64]:
    """(n,) the losses.

    Raises:
        DataError: a label or an output makes no sense for the loss.
    """
    return row_losses(rules.manifest.loss, rows, delta=rules.manifest.huber_delta)


def latest_labelled(store: SampleStore, place: Place, count: int) -> list[LabelledRow]:
    """The last ``count`` labelled rows of these weights up to the cursor, as far back as is looked."""
    reach = min(2 * count, LOOKED_BACK_ROWS)
    rows = store.labelled_since(max(0, place.cursor - reach), reach)
    return [row for row in rows if place.judges(row.weights) and row.arrival <= place.cursor][-count:]
